"""``everything_saveable``: JAX's name for no recompute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.decision import Decision, Stack


@dataclass(frozen=True, slots=True)
class EverythingSaveable(Policy):
    """Every saved tensor may be kept, so every one is: the same as ``none`` (``jax.checkpoint_policies``)."""

    name: ClassVar[str] = "everything_saveable"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """No layer recomputes anything."""
        return {}
