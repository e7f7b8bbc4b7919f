"""Offload: saved tensors wait for backward in pinned host memory.

Copies run on a side stream. A layer's tensors leave as soon as autograd saves them; they come back while the layer
after it is in backward. Host memory is kept from step to step, device memory comes from the caching allocator of the
compute stream, so after the first steps nothing is allocated.
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
        with transfers.after_compute():
            for begin, end, host in self._host.pieces:
                host.copy_(whole[begin:end], non_blocking=True)
        transfers.hold(whole)

    def bring(self) -> None:
        """Start the way back, unless it is under way."""
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
        self._storages: weakref.WeakValueDictionary[int, OffloadedStorage] = weakref.WeakValueDictionary()
        self._before = self._transfers.latest
        self._transfers.latest = weakref.ref(self)
        self._transfers.begin_layer()

    def send(self, buffer: int, tensor: torch.Tensor) -> OffloadedTensor:
        """Offload the storage of ``tensor``, once for all saved tensors on it."""
        offloaded = self._storages.get(buffer)
        if offloaded is None:
            offloaded = self._storages[buffer] = OffloadedStorage(tensor, self._transfers)
        return OffloadedTensor(self, offloaded, tensor)

    def bring(self) -> None:
        """Start the way back of everything."""
        for offloaded in list(self._storages.values()):
            offloaded.bring()

    def bring_before(self) -> None:
        """This frame is in backward: the one before it is next, and nothing leaves any more."""
        self._transfers.let_go()
        before, self._before = self._before, None
        offloads = before() if before is not None else None
        if offloads is not None:
            offloads.bring()


class OffloadedTensor:
    """A saved tensor whose storage is offloaded: calling it gives the tensor."""

    __slots__ = ("_offloads", "_offset", "_shape", "_stride", "dtype", "offloaded")

    def __init__(self, offloads: FrameOffloads, offloaded: OffloadedStorage, tensor: torch.Tensor) -> None:
        self.offloaded = offloaded
        self.dtype = tensor.dtype
        self._offloads = offloads
        self._shape: Sequence[int] = tensor.shape
        self._stride: Sequence[int] = tensor.stride()
        self._offset = tensor.storage_offset()

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
            offloads = frame.of_verb.get("offload")
            if offloads is None:
                offloads = frame.of_verb["offload"] = FrameOffloads(tensor.device)
            handle: OffloadedTensor = offloads.send(place.buffer, tensor)
            if place.is_source:
                frame.sources.append(handle)
            return handle

        return send

    @staticmethod
    def unpack(frame: Frame, handle: Any) -> torch.Tensor:
        """The tensor, on the device; a graph that is retained sends it back again."""
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
