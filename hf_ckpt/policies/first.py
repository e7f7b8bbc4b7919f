"""``first(n)``: recompute the first n decoder layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import CountedLayers

if TYPE_CHECKING:
    from ..policy.decision import Stack


@dataclass(frozen=True, slots=True)
class First(CountedLayers):
    """The first n layers: their saved tensors live longest (they are used last in backward)."""

    name: ClassVar[str] = "first"

    def select(self, stack: Stack) -> frozenset[int]:
        """The first n layers, or all when there are fewer."""
        return frozenset(range(min(self.n, len(stack.layers))))
