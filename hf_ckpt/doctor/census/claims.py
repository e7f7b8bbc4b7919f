"""Counts storages, each for the first who claims it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.untraced.saved_counter import storages
from ...measuring.memory_limit import memory_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch


class Claims:
    """Storages of one device by their first claimant.

    Attributes:
        bytes_of: Bytes by claimant, in the order of the first claims.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._limit = memory_limit(device)
        self.bytes_of: dict[str, int] = {}
        #: Held, so that no storage made meanwhile gets the address of another one.
        self._claimed: dict[int, torch.UntypedStorage] = {}

    def claim(self, claimant: str, tensors: Iterable[torch.Tensor]) -> int:
        """Count what of these nobody claimed yet; bytes."""
        found = 0
        for tensor in tensors:
            for storage in self.free(tensor):
                self._claimed[storage._cdata] = storage
                found += storage.nbytes()
        if found:
            self.bytes_of[claimant] = self.bytes_of.get(claimant, 0) + found
        return found

    def free(self, tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
        """The storages behind ``tensor`` on this device that nobody claimed."""
        for storage in self._here(tensor):
            if storage._cdata not in self._claimed:
                yield storage

    def _here(self, tensor: torch.Tensor) -> list[torch.UntypedStorage]:
        try:
            # Not the tensor's own device: a fake one names a real device, and its storage says meta.
            return [found for found in storages(tensor) if self._is_here(found)]
        except (RuntimeError, NotImplementedError, AttributeError):  # half-made, functorch's, without storage
            return []

    def _is_here(self, storage: torch.UntypedStorage) -> bool:
        if storage.device != self.device:
            return False
        return self._limit is None or self._limit.counts(storage)
