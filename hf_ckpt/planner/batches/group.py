"""Forwards that are alive together before one backward: what a plan has to leave for the others. Pure, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .per_batch import BatchSize


@dataclass
class Group:
    """The most that was ever alive together.

    All forwards of a group get the plan of its largest one, so that all keep the same share of what they save; then the
    others hold ``weight - 1`` times what the largest holds. What is in memory grows with ``load``. ``adds`` is whether
    there were gradients already, to which their backward adds.
    """

    load: int = 0
    largest: BatchSize | None = None
    adds: bool = False
    _recent: BatchSize | None = None

    def meet(self, size: BatchSize, waiting: int, *, adds: bool = False) -> bool:
        """Note a forward while others of load ``waiting`` wait; returns whether more is alive than ever before.

        ``adds`` is whether there are gradients now.
        """
        if not waiting:
            self._recent = size
            return False
        self._recent = _larger(size, self._recent)
        grown = waiting + size.load > self.load or (adds and not self.adds)
        self.adds = self.adds or adds
        self.load = max(self.load, waiting + size.load)
        self.largest = _larger(self._recent, self.largest)
        return grown

    def representative(self, size: BatchSize) -> BatchSize:
        """The size whose plan a forward of this size gets."""
        return _larger(size, self.largest)

    def weight(self, size: BatchSize) -> float:
        """All forwards of a group that has one of this size, the largest, in units of that one."""
        if self.largest is None:
            return 1.0
        return 1.0 + max(0, self.load - self.largest.load) / max(1, size.load)


def _larger(one: BatchSize, other: BatchSize | None) -> BatchSize:
    return one if other is None or one.load > other.load else other
