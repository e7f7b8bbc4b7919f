"""``segments(k)``: true segment checkpointing, k consecutive decoder layers in one region."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, ClassVar, Self

from ..policy.base import Policy, positive_int
from ..policy.decision import Decision, RecomputeSegment, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Segments(Policy):
    """Store only the boundary in front of each k layers, and replay the whole segment in backward.

    With L layers, B bytes at a boundary and I inside one layer it holds ``ceil(L/k) * B`` and rebuilds ``k * I`` at a
    time, where ``every(k)`` holds ``ceil(L/k) * B + (L - ceil(L/k)) * I``. The sum ``L/k * B + k * I`` is smallest at
    ``k = sqrt(L * B / I)``. For a decoder layer I is many times B (attention and MLP intermediates), so the best k is
    mostly 1, which is ``full``: sqrt(L) segments (Chen et al. 2016, arXiv:1604.06174) assume I = B and lose here.

    Args:
        k: Layers in a segment, 1 or more; None for the square root of their number.
    """

    name: ClassVar[str] = "segments"
    usage: ClassVar[str] = "segments(2)"
    k: int | None

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """A whole number above 0, or ``sqrt``."""
        if arguments == ("sqrt",):
            return cls(None)
        return cls(positive_int(cls.name, arguments))

    def arguments(self) -> tuple[str, ...]:
        """``k`` or ``sqrt``."""
        return ("sqrt" if self.k is None else str(self.k),)

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Regions of k layers from the first layer on; the last one may be shorter."""
        count = len(stack.layers)
        size = self.k or max(1, isqrt(count))
        return {
            index: RecomputeSegment(index - index % size, min(index - index % size + size, count) - 1)
            for index in range(count)
        }
