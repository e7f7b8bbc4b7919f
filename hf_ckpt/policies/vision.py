"""``vision``: the layers of the vision tower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..policy.base import LayerSelector
from ..policy.decision import Stack, Tower


@dataclass(frozen=True, slots=True)
class Vision(LayerSelector):
    """Every layer of the vision tower; behind ``@`` it restricts a policy to that tower."""

    name: ClassVar[str] = "vision"
    towers: ClassVar[frozenset[Tower] | None] = frozenset({Tower.VISION})

    def select(self, stack: Stack) -> frozenset[int]:
        """All layers of a vision stack, none of another."""
        return frozenset(range(len(stack.layers))) if stack.tower is Tower.VISION else frozenset()
