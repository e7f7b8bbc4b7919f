"""``dots_saveable``: selective activation checkpointing under JAX's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy
from ..policy.decision import Decision, RecomputeExcept, SaveableOps, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DotsSaveable(Policy):
    """Keep the outputs of matmuls and attention kernels, rebuild the rest (``jax.checkpoint_policies``)."""

    name: ClassVar[str] = "dots_saveable"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """The same rule for every layer."""
        return {layer.index: RecomputeExcept(SaveableOps("dots")) for layer in stack.layers}
