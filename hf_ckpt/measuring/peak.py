"""The most bytes that were alive at once during a step, above what was alive before it.

On CUDA the caching allocator knows. On other devices every operator's results are watched (``TorchDispatchMode``): a
storage counts from the operator that made it until its last reference is gone. Workspace that a kernel takes and gives
back within one call has no storage, so on CPU it is not seen. Storages resized in place count at their first size.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType


class PeakMeter:
    """``with PeakMeter(device) as meter: step()``, then ``meter.peak_bytes``.

    ``device`` is where the model computes. The block must hold the backward pass too: that is where recompute peaks.
    Watching costs Python time for every operator, so never time a step that is metered.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        #: Bytes; filled when the block ends.
        self.peak_bytes = 0
        self._live = LiveStorages(device)
        self._before = 0

    def __enter__(self) -> Self:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            self._before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._live.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.device.type == "cuda":
            self.peak_bytes = torch.cuda.max_memory_allocated(self.device) - self._before
        else:
            self._live.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
            self.peak_bytes = self._live.peak_bytes

    def alive_bytes(self) -> int:
        """Bytes alive now, inside the block, above what was alive before it."""
        if self.device.type == "cuda":
            return torch.cuda.memory_allocated(self.device) - self._before
        return self._live.live_bytes


class LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operators make on one device while the mode is on, until they die."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device_type = device.type
        self.live_bytes = 0
        self.peak_bytes = 0
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator; what it returns and did not get is new."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if _only_aliases(func):
            return out
        made = {key: storage for key, storage in self._storages_in(out) if key not in self._alive}
        if made:
            for key, _ in self._storages_in((*args, *kwargs.values())):
                made.pop(key, None)
            for storage in made.values():
                self._count(storage)
        return out

    def _storages_in(self, value: Any) -> Iterator[tuple[int, torch.UntypedStorage]]:
        """The storages on the device, by the address of the StorageImpl (torch/csrc/Storage.cpp).

        It is unique while the storage lives, also where it has no memory.
        """
        for tensor in _tensors_in(value):
            if self._is_ours(tensor):
                storage = tensor.untyped_storage()
                yield storage._cdata, storage

    def _is_ours(self, tensor: torch.Tensor) -> bool:
        # A fake tensor claims a real device; its storage says meta.
        strided = tensor.layout is torch.strided
        return strided and tensor.untyped_storage().device.type == self.device_type

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()

        def gone(_: weakref.ref[torch.UntypedStorage]) -> None:
            self.live_bytes -= size
            self._alive.pop(key, None)

        self._alive[key] = weakref.ref(storage, gone)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)


@functools.cache
def _only_aliases(func: Callable[..., Any]) -> bool:
    """Whether each result is an argument, or a view of one, by the operator's schema: nothing new is there to count."""
    schema = getattr(func, "_schema", None)
    if schema is None or any(str(argument.type) == "Storage" for argument in schema.arguments):
        return False
    return all(result.alias_info is not None for result in schema.returns)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an operator's arguments or results, which nest lists and tuples only: pytree takes far longer."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors_in(part)
