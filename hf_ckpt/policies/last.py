"""``last(n)``: recompute the last n decoder layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import CountedLayers

if TYPE_CHECKING:
    from ..policy.decision import Stack


@dataclass(frozen=True, slots=True)
class Last(CountedLayers):
    """The last n layers: they are replayed first in backward, while every other layer still holds its saved tensors."""

    name: ClassVar[str] = "last"

    def select(self, stack: Stack) -> frozenset[int]:
        """The last n layers, or all when there are fewer."""
        return frozenset(range(max(0, len(stack.layers) - self.n), len(stack.layers)))
