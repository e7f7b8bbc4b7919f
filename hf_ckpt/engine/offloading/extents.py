"""Which parts of a span of bytes are free. Pure, no torch."""

from __future__ import annotations

from bisect import bisect_left


class Extents:
    """The free parts of ``nbytes`` bytes: ``parts`` are pairs of start and end, ascending, no two of them touch."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.parts = [(0, nbytes)]

    @property
    def free(self) -> int:
        """Bytes in all free parts."""
        return sum(end - start for start, end in self.parts)

    def take(self, start: int, nbytes: int) -> None:
        """Take the first ``nbytes`` of the free part that begins at ``start`` and has as many."""
        place = bisect_left(self.parts, (start, start))
        _, end = self.parts[place]
        self.parts[place : place + 1] = [(start + nbytes, end)] if start + nbytes < end else []

    def give(self, start: int, end: int) -> None:
        """Free what was taken; parts that touch become one."""
        place = bisect_left(self.parts, (start, end))
        if place < len(self.parts) and self.parts[place][0] == end:
            end = self.parts.pop(place)[1]
        if place and self.parts[place - 1][1] == start:
            place -= 1
            start = self.parts.pop(place)[0]
        self.parts.insert(place, (start, end))
