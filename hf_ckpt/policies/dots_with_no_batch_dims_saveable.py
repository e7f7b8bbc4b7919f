"""``dots_with_no_batch_dims_saveable``: selective activation checkpointing under JAX's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy
from ..policy.decision import Decision, RecomputeExcept, SaveableOps, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DotsWithNoBatchDimsSaveable(Policy):
    """Keep the outputs of weight matmuls (mm, addmm), rebuild batched ones (attention) and the rest."""

    name: ClassVar[str] = "dots_with_no_batch_dims_saveable"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """The same rule for every layer."""
        return {layer.index: RecomputeExcept(SaveableOps("dots_with_no_batch_dims")) for layer in stack.layers}
