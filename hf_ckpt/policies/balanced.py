"""``balanced``: the best fixed choice for the attention kernel the model uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy
from ..policy.decision import Decision, RecomputeLayer, RecomputeSublayers, Role, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHEAP_WITH_EAGER = (Role.ATTENTION, Role.NORM)
_CHEAP_WITH_FUSED = (Role.MLP, Role.EXPERTS, Role.NORM)


@dataclass(frozen=True, slots=True)
class Balanced(Policy):
    """Recompute the sublayers that free most bytes for their time.

    With eager attention these are attention (its softmax matrix is the largest saved tensor) and the norms; with SDPA
    and flash attention, which never store that matrix, the MLP and the norms. Layers without such sublayers are
    recomputed whole.
    """

    name: ClassVar[str] = "balanced"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """By the stack's attention kernel and the sublayers each layer has."""
        wanted = _CHEAP_WITH_EAGER if stack.kernel == "eager" else _CHEAP_WITH_FUSED
        decisions: dict[int, Decision] = {}
        for layer in stack.layers:
            present = frozenset(role for role in wanted if layer.sublayers.get(role))
            decisions[layer.index] = RecomputeSublayers(present) if present - {Role.NORM} else RecomputeLayer()
        return decisions
