"""What a policy decides: plain data, no torch.

A policy looks at a :class:`Stack` (what there is) and answers with one :data:`Decision` a layer (what to do). Engines
turn decisions into actions on the real model. Names follow the field: a *saved tensor* is what autograd stores for
backward; it is *kept*, or *rebuilt* by recompute, or *offloaded* to host memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(StrEnum):
    """What a sublayer is for, whatever its class is called."""

    ATTENTION = "attention"
    MLP = "mlp"
    NORM = "norm"
    EXPERTS = "experts"


class Tower(StrEnum):
    """Which part of a (multimodal) model a stack of layers belongs to."""

    LANGUAGE = "language"
    VISION = "vision"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer.

    ``index`` counts within its stack; ``name`` is its fully qualified name in the model (wrappers' prefixes removed);
    ``sublayers`` maps each role to the names of its modules, relative to the layer.
    """

    index: int
    name: str
    class_name: str
    sublayers: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stack:
    """The decoder layers of one tower, and the attention kernel its layers really call.

    ``kernel`` is transformers' attention implementation: ``"eager"`` (the softmax matrix is a saved tensor),
    ``"sdpa"``, ``"flash_attention_2"``, ``"flex_attention"`` (it is not), or ``"unknown"``.
    """

    name: str
    tower: Tower
    layers: tuple[Layer, ...]
    kernel: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep every saved tensor of the layer: no recompute."""


@dataclass(frozen=True, slots=True)
class RecomputeLayer:
    """Keep only the layer's inputs; rebuild everything else (full activation checkpointing of this layer).

    With ``offload`` its own input, the hidden states, waits in host memory.
    """

    offload: bool = False


@dataclass(frozen=True, slots=True)
class RecomputeSublayers:
    """Rebuild what is saved inside the sublayers of these roles; keep the rest."""

    roles: frozenset[Role]


@dataclass(frozen=True, slots=True)
class SaveableOps:
    """Which op outputs may be kept; named as in ``jax.checkpoint_policies``.

    ``rule`` is ``"nothing"``, ``"dots"``, ``"dots_with_no_batch_dims"`` or ``"names"``; ``names`` are aten overload
    packets or overloads (``"mm"``, ``"aten.addmm"``, ``"aten.mm.default"``), used by ``"names"`` only.
    """

    rule: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecomputeExcept:
    """Rebuild every saved tensor of the layer, except outputs of these ops (selective activation checkpointing)."""

    saveable: SaveableOps


@dataclass(frozen=True, slots=True)
class RecomputeUnion:
    """Rebuild what any of these rebuilds: a saved tensor is kept where all of them keep it. At least two parts."""

    parts: tuple[RecomputeSublayers | RecomputeExcept, ...]


@dataclass(frozen=True, slots=True)
class RecomputeSegment:
    """The layer belongs to the region ``first..last`` (inclusive): only that region's input is kept."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Planned:
    """The planner decides about every saved tensor of the layer, anew for each size of batch."""


Decision = Planned | Keep | RecomputeLayer | RecomputeSublayers | RecomputeExcept | RecomputeUnion | RecomputeSegment
