"""The copies of one device to host memory and back, on a stream of their own.

Tensors on their way are held here and not by ``record_stream``: that gives memory back when the copy has really ended,
and by then the host, which runs ahead, has asked the device for more. The compute stream waits instead: when a layer
begins to send, what the layer before the last one sent has left.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from .free_memory import rank_bytes
from .host_memory import SLACK, HostMemory

if TYPE_CHECKING:
    import weakref

_TRANSFERS: dict[torch.device, Transfers] = {}
_LOCK = threading.Lock()


class Transfers:
    """The side stream and the host memory of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if self.is_cuda else None  # type: ignore[no-untyped-call]
        self.host = HostMemory(device, self._wait)
        #: What the layer offloaded whose forward was the latest.
        self.latest: weakref.ref[Any] | None = None
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
            if not self._leaving:  # a model was restored while this layer sent
                self._leaving.append(Leaving())
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

    def _wait(self) -> None:
        """Return once every copy has ended."""
        if self.stream is not None:
            self.stream.synchronize()

    def event(self) -> torch.cuda.Event | None:
        """Marks this point of the side stream."""
        return None if self.stream is None else self.stream.record_event()


def transfers_of(device: torch.device) -> Transfers:
    """The transfers of a device, made at first use."""
    with _LOCK:
        if device not in _TRANSFERS:
            _TRANSFERS[device] = Transfers(device)
        return _TRANSFERS[device]


def forward_begins() -> None:
    """A forward begins whose plan may offload: what the latest ones did not use goes back to the host."""
    for transfers in list(_TRANSFERS.values()):
        transfers.host.forward_begins()


def give_back() -> None:
    """A model that was offloaded from is no more: host memory goes back, now or when nothing is out any more.

    So does what an interrupted forward sent: no backward lets it go.
    """
    for transfers in list(_TRANSFERS.values()):
        transfers.let_go()
        transfers.host.end()


def plannable_bytes() -> int | None:
    """Bytes of host memory that the plans of this rank may use; None where the system does not say.

    They leave room for what is pinned beyond what is out.
    """
    most = rank_bytes(sum(t.host.pinned for t in list(_TRANSFERS.values())))
    return None if most is None else int(most / SLACK)


class Leaving:
    """The tensors that one layer sent; ``last`` marks the end of the latest copy."""

    def __init__(self) -> None:
        self.last: torch.cuda.Event | None = None
        self._tensors: list[torch.Tensor] = []

    def sent(self, tensor: torch.Tensor, ends: torch.cuda.Event) -> None:
        """Another one was sent."""
        self._tensors.append(tensor)
        self.last = ends
