"""Offload: saved tensors wait for backward in pinned host memory.

Copies run on a side stream. A layer's tensors leave as soon as autograd saves them; they come back while the layer
after it is in backward. Host memory is kept from step to step, device memory comes from the caching allocator of the
compute stream, so after the first steps nothing is allocated.

What is still on the card when backward asks for it is taken as it is: the latest two layers send for nothing, which
nobody knows while they run forward. A tensor that is written in place after it was sent is an error in backward, as for
kept ones: the copy may have either of its values.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from ...errors import PolicyError
from ..offloading.transfers import transfers_of
from ..verb import PackingVerb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..offloading.transfers import Transfers
    from ..running.frame import Frame
    from ..verb import Pack, Place


class OffloadedStorage:
    """One storage: on its way to the host, there, or on its way back."""

    def __init__(self, tensor: torch.Tensor, transfers: Transfers) -> None:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        self._transfers = transfers
        self._nbytes = whole.numel()
        self._host = transfers.host.take(self._nbytes)
        self._back: torch.Tensor | None = None
        self._arrived: torch.cuda.Event | None = None
        self._asked: torch.cuda.Stream | None = None
        #: What leaves, for as long as it is held until it has left.
        self._leaving = weakref.ref(whole)
        with transfers.after_compute():
            for begin, end, host in self._host.pieces:
                host.copy_(whole[begin:end], non_blocking=True)
        transfers.hold(whole)

    def bring(self) -> None:
        """Start the way back, unless it is under way or has not left."""
        if self._back is None:
            self._back = self._leaving()
        if self._back is None:
            self._back = torch.empty(self._nbytes, dtype=torch.uint8, device=self._transfers.device)
            with self._transfers.after_compute():
                for begin, end, host in self._host.pieces:
                    self._back[begin:end].copy_(host, non_blocking=True)
            self._arrived = self._transfers.event()
            self._asked = self._transfers.compute_stream()

    def storage(self) -> torch.UntypedStorage:
        """The storage on the device, for work queued on the compute stream from here on."""
        self.bring()
        self._wait_for_arrival(self._transfers.compute_stream())
        assert self._back is not None
        return self._back.untyped_storage()

    def evict(self) -> None:
        """Drop the copy on the device: the host keeps its own."""
        self._back = None

    def _wait_for_arrival(self, stream: torch.cuda.Stream | None) -> None:
        """``stream`` waits: from here on it may read the copy on the device, or use its memory again."""
        if self._arrived is not None and stream is not None:
            stream.wait_event(self._arrived)

    def __del__(self) -> None:
        if getattr(self, "_back", None) is not None:  # a backward that was cut short may not have asked for it
            self._wait_for_arrival(self._asked)
        host = getattr(self, "_host", None)
        if host is not None:
            self._transfers.host.give(host)


class FrameOffloads:
    """The offloaded storages of one frame, and a link to those of the frame before, which come back next."""

    def __init__(self, device: torch.device) -> None:
        self._transfers = transfers_of(device)
        self._storages: weakref.WeakValueDictionary[tuple[int, int], OffloadedStorage] = weakref.WeakValueDictionary()
        self._before = self._transfers.latest
        self._transfers.latest = weakref.ref(self)
        self._transfers.begin_layer()

    def send(self, buffer: int, tensor: torch.Tensor) -> OffloadedTensor:
        """Offload the storage of ``tensor``, once for all that is saved of it between two writes."""
        key = buffer, tensor._version
        offloaded = self._storages.get(key)
        if offloaded is None:
            offloaded = self._storages[key] = OffloadedStorage(tensor, self._transfers)
        return OffloadedTensor(self, offloaded, tensor)

    def bring(self) -> None:
        """Start the way back of everything."""
        for offloaded in list(self._storages.values()):
            offloaded.bring()

    def bring_before(self) -> None:
        """This frame is in backward: the one before it is next, and nothing leaves any more."""
        before, self._before = self._before, None
        offloads = before() if before is not None else None
        if offloads is not None:
            offloads.bring()
        self._transfers.let_go()


class OffloadedTensor:
    """A tensor whose storage is offloaded: calling it gives the tensor."""

    __slots__ = ("_counter", "_offloads", "_offset", "_shape", "_stride", "dtype", "offloaded", "version")

    def __init__(self, offloads: FrameOffloads, offloaded: OffloadedStorage, tensor: torch.Tensor) -> None:
        self.offloaded = offloaded
        self.dtype = tensor.dtype
        self._offloads = offloads
        self._shape: Sequence[int] = tensor.shape
        self._stride: Sequence[int] = tensor.stride()
        self._offset = tensor.storage_offset()
        self.version = tensor._version
        # It counts the writes to the tensor and has none of its memory: `data =` leaves a tensor's counter alone
        # (``VariableHooks::set_data`` in torch/csrc/autograd/variable.cpp).
        self._counter = tensor.detach()
        self._counter.data = tensor.new_empty(0)

    @property
    def _version(self) -> int:
        """The writes in place that the tensor has seen."""
        return self._counter._version

    def __call__(self) -> torch.Tensor:
        """The tensor, on the device."""
        storage = self.offloaded.storage()
        self._offloads.bring_before()
        empty = torch.empty(0, dtype=self.dtype, device=storage.device)
        return empty.set_(storage, self._offset, self._shape, self._stride)


class Offload(PackingVerb):
    """The tensor's storage is on the host between forward and backward."""

    name = "offload"
    handle = OffloadedTensor

    def packer(self, place: Place) -> Pack:
        """Start its way to the host."""

        def send(frame: Frame, tensor: torch.Tensor) -> OffloadedTensor:
            handle = _offloads(frame, tensor.device).send(place.buffer, tensor)
            if place.is_source:
                frame.sources.append(handle)
            return handle

        return send

    @staticmethod
    def unpack(frame: Frame, handle: Any) -> torch.Tensor:
        """The tensor, on the device; a graph that is retained sends it back again.

        Raises RuntimeError when it was written in place since.
        """
        if handle._version != handle.version:
            raise RuntimeError(frame.modified("a saved tensor"))
        tensor: torch.Tensor = handle()
        if frame.retained:
            handle.offloaded.evict()
        return tensor

    def check_possible(self, layer: str, device: torch.device) -> None:
        """Raise PolicyError where there is nowhere to offload to."""
        if device.type != "cuda":
            raise PolicyError(
                f"{layer}: offload moves activations from a GPU to host memory, and they are in host memory already "
                f"(device {device}); choose a policy without offload"
            )


def _offloads(frame: Frame, device: torch.device) -> FrameOffloads:
    """The storages that this call offloads from ``device``."""
    name = f"offload {device}"
    found: FrameOffloads | None = frame.of_verb.get(name)
    if found is None:
        found = frame.of_verb[name] = FrameOffloads(device)
    return found
