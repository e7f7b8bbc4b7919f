"""``norm``: recompute just the norms of each decoder layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy
from ..policy.decision import Decision, Role, Stack
from ..policy.sublayers import recompute_roles

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Norm(Policy):
    """Rebuild what the norms save: fp32 intermediates in eager bf16 models, and nearly free to rebuild."""

    name: ClassVar[str] = "norm"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer that has this sublayer. Raises PolicyError when none has."""
        return recompute_roles(stack, Role.NORM)
