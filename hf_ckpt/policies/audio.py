"""``audio``: the layers of the audio tower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..policy.base import LayerSelector
from ..policy.decision import Stack, Tower


@dataclass(frozen=True, slots=True)
class Audio(LayerSelector):
    """Every layer of the audio tower; behind ``@`` it restricts a policy to that tower."""

    name: ClassVar[str] = "audio"
    towers: ClassVar[frozenset[Tower] | None] = frozenset({Tower.AUDIO})

    def select(self, stack: Stack) -> frozenset[int]:
        """All layers of a audio stack, none of another."""
        return frozenset(range(len(stack.layers))) if stack.tower is Tower.AUDIO else frozenset()
