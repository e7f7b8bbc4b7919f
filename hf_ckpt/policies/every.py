"""``every(k)``: recompute every k-th decoder layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..policy.base import LayerSelector, positive_int

if TYPE_CHECKING:
    from ..policy.decision import Stack


@dataclass(frozen=True, slots=True)
class Every(LayerSelector):
    """Layers 0, k, 2k, ... of the stack are recomputed, the others keep everything.

    This is not segment checkpointing (see ``segments``): with L layers, B bytes at a boundary and I inside a layer it
    holds ``ceil(L/k) * B + (L - ceil(L/k)) * I``, so a larger k holds *more*. Counting is per tower, so a vision tower
    never shifts which language layers are chosen.
    """

    name: ClassVar[str] = "every"
    k: int

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """One whole number above 0."""
        return cls(positive_int(cls.name, arguments))

    def arguments(self) -> tuple[str, ...]:
        """``k``."""
        return (str(self.k),)

    def select(self, stack: Stack) -> frozenset[int]:
        """Every k-th layer, from the first."""
        return frozenset(range(0, len(stack.layers), self.k))
