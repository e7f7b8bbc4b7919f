"""Offload: saved tensors wait for backward in pinned host memory.

Copies run on a side stream. A layer's tensors leave as soon as autograd saves them; they come back while the layer
after it is in backward. Host memory is pooled, device memory comes from the caching allocator of the compute stream, so
after the first steps nothing is allocated.

Tensors on their way are held here and not by ``record_stream``: that gives memory back when the copy has really ended,
and by then the host, which runs ahead, has asked the device for more. The compute stream waits instead: when a layer
begins to send, what the layer before the last one sent has left.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch

from ...errors import PolicyError
from ..verb import PackingVerb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..running.frame import Frame
    from ..verb import Pack, Place

_TRANSFERS: dict[torch.device, Transfers] = {}
_LOCK = threading.Lock()


class HostPool:
    """Host buffers by size, handed out again once given back. ``allocated`` counts the buffers ever made."""

    def __init__(self, pin: bool) -> None:
        self.allocated = 0
        self._pin = pin
        self._free: defaultdict[int, list[torch.Tensor]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> torch.Tensor:
        """A uint8 buffer of at least ``nbytes``. Sizes are rounded, so that batches of like lengths share buffers."""
        size = rounded(nbytes)
        with self._lock:
            if self._free[size]:
                return self._free[size].pop()
            self.allocated += 1
        return torch.empty(size, dtype=torch.uint8, pin_memory=self._pin)

    def give(self, buffer: torch.Tensor) -> None:
        """Take a buffer back. Copies that still read it are ordered before later ones by their stream."""
        with self._lock:
            self._free[buffer.numel()].append(buffer)


def rounded(nbytes: int) -> int:
    """``nbytes`` rounded up to one of eight steps per power of two: at most an eighth is wasted."""
    step = max(512, 1 << max(0, (nbytes - 1).bit_length() - 4))
    return -(-nbytes // step) * step


class Transfers:
    """The side stream and the pool of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"
        self.pool = HostPool(pin=self.is_cuda)
        self.stream = torch.cuda.Stream(device) if self.is_cuda else None  # type: ignore[no-untyped-call]
        self.latest: weakref.ref[FrameOffloads] | None = None
        self._leaving: deque[Leaving] = deque()

    def after_compute(self) -> contextlib.AbstractContextManager[object]:
        """Run what is inside on the side stream, after everything the compute stream has been given so far."""
        if self.stream is None:
            return contextlib.nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.stream)

    def begin_layer(self) -> None:
        """Another layer begins to send: what is sent until the next one begins leaves together."""
        if self.stream is not None:
            self.let_go(layers=1)
            self._leaving.append(Leaving())

    def hold(self, tensor: torch.Tensor) -> None:
        """``tensor`` is on its way: its memory must not be used again before it has left."""
        if self.stream is not None:
            self._leaving[-1].sent(tensor, self.stream.record_event())

    def let_go(self, layers: int = 0) -> None:
        """Give back the memory of all that left but for the latest ``layers``; the compute stream waits for it."""
        while len(self._leaving) > layers:
            last = self._leaving.popleft().last
            compute = self.compute_stream()
            if last is not None and compute is not None:
                compute.wait_event(last)

    def compute_stream(self) -> torch.cuda.Stream | None:
        """The stream that the caller computes on; None on a CPU."""
        return torch.cuda.current_stream(self.device) if self.is_cuda else None

    def event(self) -> torch.cuda.Event | None:
        """Marks this point of the side stream."""
        return None if self.stream is None else self.stream.record_event()


def transfers_of(device: torch.device) -> Transfers:
    """The transfers of a device, made at first use."""
    with _LOCK:
        if device not in _TRANSFERS:
            _TRANSFERS[device] = Transfers(device)
        return _TRANSFERS[device]


class Leaving:
    """The tensors that one layer sent; ``last`` marks the end of the latest copy."""

    def __init__(self) -> None:
        self.last: torch.cuda.Event | None = None
        self._tensors: list[torch.Tensor] = []

    def sent(self, tensor: torch.Tensor, ends: torch.cuda.Event) -> None:
        """Another one was sent."""
        self._tensors.append(tensor)
        self.last = ends


class OffloadedStorage:
    """One storage: on its way to the host, there, or on its way back."""

    def __init__(self, tensor: torch.Tensor, transfers: Transfers) -> None:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        self._transfers = transfers
        self._nbytes = whole.numel()
        self._host = transfers.pool.take(self._nbytes)
        self._back: torch.Tensor | None = None
        self._arrived: torch.cuda.Event | None = None
        self._asked: torch.cuda.Stream | None = None
        with transfers.after_compute():
            self._host[: self._nbytes].copy_(whole, non_blocking=True)
        transfers.hold(whole)

    def bring(self) -> None:
        """Start the way back, unless it is under way."""
        if self._back is None:
            self._back = torch.empty(self._nbytes, dtype=torch.uint8, device=self._transfers.device)
            with self._transfers.after_compute():
                self._back.copy_(self._host[: self._nbytes], non_blocking=True)
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
            self._transfers.pool.give(host)


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
