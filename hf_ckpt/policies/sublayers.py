"""``attention``, ``mlp``, ``norm``, ``balanced``: recompute some sublayers of each decoder layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..errors import ModelStructureError, PolicyError
from ..policy.base import Policy, Requests, positive_int
from ..policy.decision import Decision, RecomputeLayer, RecomputeSublayers, Role, Stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.platform import Platform

_CHEAP_WITH_EAGER = (Role.ATTENTION, Role.NORM)
_CHEAP_WITH_FUSED = (Role.MLP, Role.EXPERTS, Role.NORM)


@dataclass(frozen=True, slots=True)
class _SublayerPolicy(Policy):
    """Recompute the sublayers of these roles, or run parts of them in ``chunks`` of the tokens."""

    roles: ClassVar[tuple[Role, ...]]
    chunks: int | None = None

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """Nothing, or a whole number above 0."""
        return cls(positive_int(cls.name, arguments) if arguments else None)

    def arguments(self) -> tuple[str, ...]:
        """``chunks``, where there are any."""
        return () if self.chunks is None else (str(self.chunks),)

    def about_layers(self) -> bool:
        """With chunks it says how these parts of every layer run, and leaves what is saved to others."""
        return self.chunks is None

    def requests(self) -> Requests:
        """The parts in chunks."""
        asked: dict[str, Any] = {f"{self.name}_chunks": self.chunks}
        return Requests(**asked)

    def check(self, requests: Requests, platform: Platform) -> None:
        """Refuse chunks inside a compiled graph, and in layers without a part that can be cut."""
        if self.chunks is None:
            return
        if platform.compiled:
            raise PolicyError(
                f"`{self}` cannot be followed inside the graph that torch_compile=True makes: switch that off, or "
                "leave the chunks out"
            )
        if missing := platform.uncut.get(self.name):
            raise ModelStructureError(missing)

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer that has such a sublayer; none with chunks."""
        if self.chunks is not None:
            return {}
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
    ``attention(8)`` runs the projections into attention and out of it, adapters included, in 8 chunks of the tokens, as
    ``mlp(8)`` runs the MLP; attention itself sees all tokens.

    Args:
        chunks: In how many chunks of the tokens the projections run; None: as the model runs them.
    """

    name: ClassVar[str] = "attention"
    usage: ClassVar[str] = "attention(8)"
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


@dataclass(frozen=True, slots=True)
class Norm(_SublayerPolicy):
    """Rebuild what the norms save: fp32 intermediates in eager bf16 models, and nearly free to rebuild.

    ``norm(8)`` runs them in 8 chunks of the tokens, as ``mlp(8)`` runs the MLP: the backward of a norm that computes in
    fp32 takes ten times what it is given.

    Args:
        chunks: In how many chunks of the tokens the norms run; None: as the model runs them.
    """

    name: ClassVar[str] = "norm"
    usage: ClassVar[str] = "norm(8)"
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
