"""``full``: recompute every decoder layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import LayerSelector

if TYPE_CHECKING:
    from ..policy.decision import Stack


@dataclass(frozen=True, slots=True)
class Full(LayerSelector):
    """Keep only each layer's inputs. With L layers of which one holds I bytes inside and B at its boundary: L*B + I."""

    name: ClassVar[str] = "full"

    def select(self, stack: Stack) -> frozenset[int]:
        """Every layer."""
        return frozenset(range(len(stack.layers)))
