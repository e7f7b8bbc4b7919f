"""A bound on what tensors take of the CPU's memory: a run there meets an out-of-memory error as on a smaller device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .peak import LiveStorages

if TYPE_CHECKING:
    from collections.abc import Iterable


class MemoryLimit(LiveStorages):  # type: ignore[no-untyped-call]
    """``with MemoryLimit(nbytes, model): trainer.train()``: what would take more raises ``torch.OutOfMemoryError``.

    Counted is what operators make while it is on, until it dies, and what the modules hold from the start. An operator
    has run when its result is found to be too large; the result is dropped then.

    Args:
        nbytes: Bytes that tensors may take together.
        modules: What is there already: their parameters and buffers count.
    """

    def __init__(self, nbytes: int, *modules: torch.nn.Module) -> None:
        super().__init__(torch.device("cpu"))
        self.nbytes = nbytes
        for module in modules:
            self._hold((*module.parameters(), *module.buffers()))

    def counts(self, storage: torch.UntypedStorage) -> bool:
        """Whether it is one of those that take of the limit."""
        return storage._cdata in self._alive

    def _hold(self, tensors: Iterable[torch.Tensor]) -> None:
        for key, storage in self._storages_in(list(tensors)):
            if key not in self._alive:
                super()._count(storage)

    def _count(self, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        if self.live_bytes + size > self.nbytes:
            raise torch.OutOfMemoryError(
                f"CPU out of memory. Tried to allocate {size} bytes. The limit is {self.nbytes} bytes, of which "
                f"{self.live_bytes} bytes is allocated by PyTorch."
            )
        super()._count(storage)


def memory_limit(device: torch.device) -> MemoryLimit | None:
    """The limit that is on for this device in this thread; None without one."""
    if device.type != "cpu":
        return None
    modes = reversed(_get_current_dispatch_mode_stack())
    return next((mode for mode in modes if isinstance(mode, MemoryLimit)), None)
