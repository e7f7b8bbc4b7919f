"""Policies by op, under the names of ``jax.checkpoint_policies``: say which op outputs are kept, rebuild the rest."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import PolicyError
from ..policy.base import Policy
from ..policy.decision import Decision, Keep, RecomputeExcept, SaveableOps, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.base import Requests
    from ..policy.platform import Platform


class _OpPolicy(Policy):
    """One rule about op outputs, for every layer."""

    __slots__ = ()

    @abstractmethod
    def saveable(self) -> SaveableOps:
        """The ops whose outputs are kept."""

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """The same rule for every layer."""
        return {layer.index: RecomputeExcept(self.saveable()) for layer in stack.layers}


@dataclass(frozen=True, slots=True)
class NothingSaveable(_OpPolicy):
    """Keep no op output: the same recompute as ``full``, through the op-level mechanism."""

    name: ClassVar[str] = "nothing_saveable"

    def saveable(self) -> SaveableOps:
        """No op."""
        return SaveableOps("nothing")


@dataclass(frozen=True, slots=True)
class DotsSaveable(_OpPolicy):
    """Keep the outputs of matmuls and attention kernels, rebuild the rest (``jax.checkpoint_policies``)."""

    name: ClassVar[str] = "dots_saveable"

    def saveable(self) -> SaveableOps:
        """Every matrix multiplication."""
        return SaveableOps("dots")


@dataclass(frozen=True, slots=True)
class DotsWithNoBatchDimsSaveable(_OpPolicy):
    """Keep the outputs of weight matmuls (mm, addmm), rebuild batched ones (attention) and the rest."""

    name: ClassVar[str] = "dots_with_no_batch_dims_saveable"

    def saveable(self) -> SaveableOps:
        """Matrix multiplications with a weight."""
        return SaveableOps("dots_with_no_batch_dims")


@dataclass(frozen=True, slots=True)
class SaveOnlyTheseNames(_OpPolicy):
    """Keep the outputs of these aten ops, rebuild everything else.

    JAX names values with ``checkpoint_name``; an untouched PyTorch model has no such names, so the names are ops.

    Args:
        names: Names of aten ops, such as ``mm``, ``aten.addmm`` or ``aten.mm.default``.
    """

    name: ClassVar[str] = "save_only_these_names"
    usage: ClassVar[str] = "save_only_these_names(mm,addmm)"
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

    def check(self, requests: Requests, platform: Platform) -> None:
        """Refuse names that are no ops of torch."""
        for name in self.names:
            if not platform.has_op(name):
                raise PolicyError(
                    f"`save_only_these_names({name})`: torch has no op of that name; write for example `mm` or "
                    "`aten.addmm`"
                )

    def saveable(self) -> SaveableOps:
        """The named ops."""
        return SaveableOps("names", self.names)


@dataclass(frozen=True, slots=True)
class EverythingSaveable(Policy):
    """Keep every saved tensor: the same as ``none`` (``jax.checkpoint_policies``)."""

    name: ClassVar[str] = "everything_saveable"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer keeps everything."""
        return {layer.index: Keep() for layer in stack.layers}
