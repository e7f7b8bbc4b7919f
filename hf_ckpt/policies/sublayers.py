"""``attention``, ``mlp``, ``norm``, ``balanced``: recompute some sublayers of each decoder layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import ModelStructureError, PolicyError
from ..policy.base import Policy, Requests, positive_int
from ..policy.decision import Decision, RecomputeLayer, RecomputeSublayers, Role, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.platform import Platform

_CHEAP_WITH_EAGER = (Role.ATTENTION, Role.NORM)
_CHEAP_WITH_FUSED = (Role.MLP, Role.EXPERTS, Role.NORM)


class _SublayerPolicy(Policy):
    """Recompute the sublayers of these roles."""

    __slots__ = ()
    roles: ClassVar[tuple[Role, ...]]

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer that has such a sublayer."""
        decisions: dict[int, Decision] = {}
        for layer in stack.layers:
            present = frozenset(role for role in self.roles if layer.sublayers.get(role))
            if present:
                decisions[layer.index] = RecomputeSublayers(present)
        return decisions

    def why_none(self, stack: Stack) -> str:
        """The roles that its layers lack."""
        classes = ", ".join(sorted({layer.class_name for layer in stack.layers}))
        return f"no layer of {stack.name} ({classes}) has a sublayer of role {' or '.join(self.roles)}"


@dataclass(frozen=True, slots=True)
class Attention(_SublayerPolicy):
    """Rebuild what attention saves: q, k, v, rotary products, and with eager attention the softmax matrix.

    With SDPA or flash attention the softmax matrix is never a saved tensor, so this buys little there; with eager
    attention that matrix is the largest saved tensor of the layer and grows with the square of the sequence.
    """

    name: ClassVar[str] = "attention"
    roles: ClassVar[tuple[Role, ...]] = (Role.ATTENTION,)


@dataclass(frozen=True, slots=True)
class Mlp(_SublayerPolicy):
    """Rebuild what the MLP saves (in an MoE layer, router and experts); ``mlp(8)`` runs it in 8 chunks of the tokens.

    An MLP saves gate, up, activation and product. In chunks, in forward and again in backward, its intermediates never
    exist for all tokens: add ``mlp(8)`` to ``full`` or a budget when one layer alone is too large. Results and
    gradients are those without chunks up to rounding, not bit for bit. Experts run as ever.

    Args:
        chunks: In how many chunks of the tokens the MLP runs; None: as the model runs it.
    """

    name: ClassVar[str] = "mlp"
    usage: ClassVar[str] = "mlp(8)"
    roles: ClassVar[tuple[Role, ...]] = (Role.MLP, Role.EXPERTS)
    chunks: int | None = None

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """Nothing, or a whole number above 0."""
        return cls(positive_int(cls.name, arguments) if arguments else None)

    def arguments(self) -> tuple[str, ...]:
        """``chunks``, where there are any."""
        return () if self.chunks is None else (str(self.chunks),)

    def about_layers(self) -> bool:
        """With chunks it says how every MLP runs, and leaves what is saved to others."""
        return self.chunks is None

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer that has an MLP or experts; none with chunks."""
        return super(Mlp, self).decide(stack) if self.chunks is None else {}

    def requests(self) -> Requests:
        """The MLPs in chunks."""
        return Requests(mlp_chunks=self.chunks)

    def check(self, requests: Requests, platform: Platform) -> None:
        """Refuse chunks inside a compiled graph, and in layers without an MLP that can be cut."""
        if self.chunks is None:
            return
        if platform.compiled:
            raise PolicyError(
                f"`{self}` cannot be followed inside the graph that torch_compile=True makes: switch that off, or "
                "leave the chunks out"
            )
        if platform.missing_mlp:
            raise ModelStructureError(platform.missing_mlp)


@dataclass(frozen=True, slots=True)
class Norm(_SublayerPolicy):
    """Rebuild what the norms save: fp32 intermediates in eager bf16 models, and nearly free to rebuild."""

    name: ClassVar[str] = "norm"
    roles: ClassVar[tuple[Role, ...]] = (Role.NORM,)


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
