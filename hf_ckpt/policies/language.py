"""``language``: the layers of the language tower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..policy.base import LayerSelector
from ..policy.decision import Stack, Tower


@dataclass(frozen=True, slots=True)
class Language(LayerSelector):
    """Every layer of the language tower; behind ``@`` it restricts a policy to that tower."""

    name: ClassVar[str] = "language"
    towers: ClassVar[frozenset[Tower] | None] = frozenset({Tower.LANGUAGE})

    def select(self, stack: Stack) -> frozenset[int]:
        """All layers of a language stack, none of another."""
        return frozenset(range(len(stack.layers))) if stack.tower is Tower.LANGUAGE else frozenset()
