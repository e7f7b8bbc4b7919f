"""``save_only_these_names(mm,...)``: keep the outputs of the named ops only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import PolicyError
from ..policy.base import Policy
from ..policy.decision import Decision, RecomputeExcept, SaveableOps, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SaveOnlyTheseNames(Policy):
    """Keep the outputs of these aten ops (``mm``, ``aten.addmm``, ``aten.mm.default``), rebuild everything else.

    JAX names values with ``checkpoint_name``; an untouched PyTorch model has no such names, so the names are ops.
    """

    name: ClassVar[str] = "save_only_these_names"
    names: tuple[str, ...]

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """One op name or more."""
        if not arguments:
            raise PolicyError(
                "policy `save_only_these_names` needs op names: write for example `save_only_these_names(mm,addmm)`"
            )
        return cls(arguments)

    def arguments(self) -> tuple[str, ...]:
        """The op names."""
        return self.names

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """The same rule for every layer."""
        return {layer.index: RecomputeExcept(SaveableOps("names", self.names)) for layer in stack.layers}
