"""``mlp``: recompute just the MLP of each decoder layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy
from ..policy.decision import Decision, Role, Stack
from ..policy.sublayers import recompute_roles

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Mlp(Policy):
    """Rebuild what the MLP saves (gate, up, activation, product); in an MoE layer, what router and experts save."""

    name: ClassVar[str] = "mlp"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer that has this sublayer. Raises PolicyError when none has."""
        return recompute_roles(stack, Role.MLP, Role.EXPERTS)
