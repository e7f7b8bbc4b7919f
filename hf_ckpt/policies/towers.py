"""``language``, ``vision``, ``audio``: the layers of one tower of a multimodal model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..policy.base import LayerSelector
from ..policy.decision import Stack, Tower


class _TowerPolicy(LayerSelector):
    """Every layer of the towers that the policy speaks about."""

    __slots__ = ()
    towers: ClassVar[frozenset[Tower] | None]

    def select(self, stack: Stack) -> frozenset[int]:
        """All layers of a stack of this tower, none of another."""
        assert self.towers is not None
        return frozenset(range(len(stack.layers))) if stack.tower in self.towers else frozenset()


@dataclass(frozen=True, slots=True)
class Language(_TowerPolicy):
    """Recompute every layer of the language tower; behind ``@`` it restricts a policy to that tower."""

    name: ClassVar[str] = "language"
    towers: ClassVar[frozenset[Tower] | None] = frozenset({Tower.LANGUAGE})


@dataclass(frozen=True, slots=True)
class Vision(_TowerPolicy):
    """Recompute every layer of the vision tower; behind ``@`` it restricts a policy to that tower."""

    name: ClassVar[str] = "vision"
    towers: ClassVar[frozenset[Tower] | None] = frozenset({Tower.VISION})


@dataclass(frozen=True, slots=True)
class Audio(_TowerPolicy):
    """Recompute every layer of the audio tower; behind ``@`` it restricts a policy to that tower."""

    name: ClassVar[str] = "audio"
    towers: ClassVar[frozenset[Tower] | None] = frozenset({Tower.AUDIO})
