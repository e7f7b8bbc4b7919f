"""``nothing_saveable``: selective activation checkpointing under JAX's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy
from ..policy.decision import Decision, RecomputeExcept, SaveableOps, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class NothingSaveable(Policy):
    """Keep no op output: the same recompute as ``full``, through the op-level mechanism."""

    name: ClassVar[str] = "nothing_saveable"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """The same rule for every layer."""
        return {layer.index: RecomputeExcept(SaveableOps("nothing")) for layer in stack.layers}
