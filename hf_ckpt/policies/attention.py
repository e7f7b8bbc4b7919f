"""``attention``: recompute just the attention of each decoder layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy
from ..policy.decision import Decision, Role, Stack
from ..policy.sublayers import recompute_roles

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Attention(Policy):
    """Rebuild what attention saves: q, k, v, rotary products, and with eager attention the softmax matrix.

    With SDPA or flash attention the softmax matrix is never a saved tensor, so this buys little there; with eager
    attention that matrix is the largest saved tensor of the layer and grows with the square of the sequence.
    """

    name: ClassVar[str] = "attention"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer that has this sublayer. Raises PolicyError when none has."""
        return recompute_roles(stack, Role.ATTENTION)
