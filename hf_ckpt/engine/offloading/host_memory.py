"""Pinned host memory of one device: as much as is out at once, cut to any size, and given back when it is not used.

Memory is pinned in segments. A tensor gets one free part of a segment, or several where no part is large enough; only
what is missing then is pinned anew. So batches of every length share the same memory.

One stream makes all copies of a device, so memory that is given back may be handed out again at once: the next copy
into it comes after the last one out of it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rich.filesize import decimal

from ...errors import BudgetError
from .extents import Extents
from .free_memory import SHARE, local_ranks, rank_bytes
from .pinned import PAGE, host_memory, pin, unpin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

#: Tensors begin at multiples of it.
_ALIGNED = 512
#: A tensor is cut into no parts below this share of it: every part is a copy of its own.
_LEAST_PART = 1 / 8
#: A new segment has at least this share of what is pinned, and these bytes: fewer segments, for little memory.
_GROWTH, _LEAST = 1 / 16, 1 << 20
#: What may be pinned beyond the most that was out at once, in the latest :data:`_REMEMBERED` forwards.
SLACK, _SMALL = 1.1, 2 << 20
_REMEMBERED = 32


class Segment(Extents):
    """Pages of the host, to be pinned for ``device``; only host memory where it is None."""

    def __init__(self, nbytes: int, device: torch.device | None) -> None:
        super().__init__(nbytes)
        self._device = device
        self.memory = host_memory(nbytes)
        #: The round in which something of it was last handed out.
        self.used = 0

    def pin(self) -> None:
        """Pin it. Raises MemoryError when the driver refuses."""
        if self._device is not None and not pin(self.memory, self._device):
            raise MemoryError

    def release(self) -> None:
        """Give it back to the host. Nothing of it may be out, and no copy under way."""
        if self._device is not None:
            unpin(self.memory, self._device)
        del self.memory


#: Bytes of a free part, where it begins, and in which segment.
Place: TypeAlias = tuple[int, int, Segment]


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a segment that are out."""

    segment: Segment
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """Host memory for one tensor: ``pieces`` are its bytes from, to, and where they go, in order."""

    parts: tuple[Part, ...]
    pieces: tuple[tuple[int, int, torch.Tensor], ...]


class HostMemory:
    """Host memory of ``device``, pinned if it is a CUDA device; ``wait`` returns once no copy is under way.

    ``pinned`` are the bytes it has, ``out`` those that are handed out, ``segments`` how many were ever made.
    """

    def __init__(self, device: torch.device, wait: Callable[[], None] = lambda: None) -> None:
        self.pinned = self.out = self.segments = 0
        self._device = device if device.type == "cuda" else None
        self._wait = wait
        self._segments: list[Segment] = []
        #: Blocks that came back. They do at any moment, in any thread, in the middle of a method of this object too.
        self._given: deque[Block] = deque()
        self._most = self._round = 0
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)
        self._ends = False
        self._lock = threading.Lock()
        _ALL.add(self)

    def take(self, nbytes: int) -> Block:
        """Host memory for ``nbytes`` bytes. Raises BudgetError where this rank's part of the host's has no room."""
        size = -(-nbytes // _ALIGNED) * _ALIGNED
        with self._locked():
            self._ends = False
            self._collect()
            if self._most and not self.out:
                self._end_round()
            parts = self._parts(size)
            self.out += size
            self._most = max(self._most, self.out)
        return Block(parts, tuple(_pieces(parts, nbytes)))

    def give(self, block: Block) -> None:
        """Take a block back. Copies that still read it come before later ones on their stream."""
        self._given.append(block)
        self._end_if_wanted()

    def forward_begins(self) -> None:
        """Give back what the latest forwards did not use. Waits for the copies where there is something."""
        with self._locked():
            self._collect()
            if self.pinned and not self.out:
                self._end_round()

    def end(self) -> None:
        """Give everything back, now or when nothing is out any more."""
        self._ends = True
        self._end_if_wanted()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        finally:
            self._end_if_wanted()

    def _end_if_wanted(self) -> None:
        """Give everything back after :meth:`end` once nothing is out; where the lock is held, its holder does it next.

        That may be this very thread: a block comes back at any moment.
        """
        while self._ends and self.pinned and (self._given or not self.out) and self._lock.acquire(blocking=False):
            try:
                self._collect()
                if not self.out:
                    self._recent.clear()
                    self._most = 0
                    self._release(0)
            finally:
                self._lock.release()

    def forked(self) -> None:
        """Forget all memory, without unmapping: this is a child process, and where its parent's was, its own may be."""
        for segment in self._segments:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(segment.memory))
        self._segments, self.pinned, self._lock = [], 0, threading.Lock()

    def _collect(self) -> None:
        while self._given:
            for part in self._given.popleft().parts:
                part.segment.give(part.start, part.end)
                self.out -= part.end - part.start

    def _end_round(self) -> None:
        self._recent.append(self._most)
        self._most = 0
        self._round += 1
        needed = max(self._recent)
        if self.pinned > SLACK * needed + _SMALL:
            self._release(needed)

    def _release(self, needed: int) -> None:
        """Give segments back that the latest rounds did not use, until little more than ``needed`` is left.

        Nothing is out. What they used, the next one needs again.
        """
        idle = [s for s in self._segments if not needed or s.used < self._round - _REMEMBERED]
        idle.sort(key=lambda s: s.nbytes)
        gone, left = list[Segment](), self.pinned
        while idle and (not needed or left > SLACK * needed + _SMALL):
            gone.append(idle.pop())
            left -= gone[-1].nbytes
        self._drop(gone)

    def _drop(self, segments: list[Segment]) -> None:
        """Give these back to the host. Nothing of them is out."""
        if segments:
            self._wait()
        for gone in segments:
            self._segments.remove(gone)
            self.pinned -= gone.nbytes
            gone.release()

    def _parts(self, size: int) -> tuple[Part, ...]:
        """Take ``size`` bytes: the smallest free part that has them, else the largest ones."""
        found: list[Part] = []
        while size:
            place = self._smallest(size)
            if place is None:
                if not found:
                    self._make_room(size)
                place = self._smallest(size) or self._largest()
            nbytes, start, segment = place
            nbytes = min(nbytes, size)
            segment.take(start, nbytes)
            segment.used = self._round
            found.append(Part(segment, start, start + nbytes))
            size -= nbytes
        return tuple(found)

    def _smallest(self, size: int) -> Place | None:
        """The smallest free part of at least ``size`` bytes."""
        free = ((end - start, start, s) for s in self._segments for start, end in s.parts if end - start >= size)
        return min(free, key=_nbytes, default=None)

    def _largest(self) -> Place:
        return max(((end - start, start, s) for s in self._segments for start, end in s.parts), key=_nbytes)

    def _make_room(self, size: int) -> None:
        """Pin what free parts that are large enough lack of ``size`` bytes.

        Where that is refused, free segments go back to the host, and only what all free parts lack is pinned.
        """
        try:
            self._grow(size - self._free(size * _LEAST_PART), max(_LEAST, int(self.pinned * _GROWTH)))
        except BudgetError:
            self._drop([s for s in self._segments if s.free == s.nbytes])
            self._grow(size - self._free(1), 0)

    def _free(self, least: float) -> int:
        """Bytes in free parts of at least so many."""
        return sum(end - start for s in self._segments for start, end in s.parts if end - start >= least)

    def _grow(self, missing: int, least: int) -> None:
        """Pin ``missing`` bytes, and up to ``least`` where there is room."""
        if missing <= 0:
            return
        most = rank_bytes(self.pinned)
        room = None if most is None else max(0, most - self.pinned)
        wanted = _in_pages(max(missing, least))
        nbytes = wanted if room is None or wanted <= room else _in_pages(missing)
        if room is not None and nbytes > room:
            raise BudgetError(f"{_needs(self.pinned, nbytes)}, and {_free(room)}; {_REMEDY}") from None
        try:
            self._add(Segment(nbytes, self._device))
        except (MemoryError, OSError):
            raise BudgetError(f"{_needs(self.pinned, nbytes)}, which the system does not give; {_REMEDY}") from None

    def _add(self, segment: Segment) -> None:
        try:
            segment.pin()
            self._segments.append(segment)
        except MemoryError:
            raise
        except BaseException:  # Ctrl-C: it is raised when the driver has pinned, and pages must not go before it unpins
            self._segments = [other for other in self._segments if other is not segment]
            segment.release()
            raise
        self.segments += 1
        self.pinned += segment.nbytes


_ALL: weakref.WeakSet[HostMemory] = weakref.WeakSet()


def _forked() -> None:
    for memory in list(_ALL):
        memory.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _nbytes(place: Place) -> int:
    return place[0]


def _in_pages(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _pieces(parts: tuple[Part, ...], nbytes: int) -> Iterator[tuple[int, int, torch.Tensor]]:
    begin = 0
    for part in parts:
        end = min(nbytes, begin + part.end - part.start)
        yield begin, end, part.segment.memory[part.start : part.start + end - begin]
        begin = end


_REMEDY = "raise the budget, shorten the batch or leave `offload` out"


def _needs(pinned: int, missing: int) -> str:
    return f"offload has pinned {decimal(pinned)} of this host's memory and needs {decimal(missing)} more"


def _free(room: int) -> str:
    ranks = local_ranks()
    each = "" if ranks == 1 else f" for each of its {ranks} ranks"
    return f"may take {decimal(room)} ({SHARE:.0%} of what is free{each})"
