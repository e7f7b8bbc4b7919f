"""What a training holds on one card before any activation, by how it is set up: sharded, quantised, accumulating.

Counted from the metadata of a model that need not exist: parameters on the meta device, whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ...compat.wrappers import ShardedUnit, ShardedWeight
from .gathering import Gathering, gathering_of
from .optimizers import foreach_copies, rule_for, state_bytes
from .quantised import packed_bytes, quantised_weights
from .state import gradient_bytes, late_gradient_bytes, storage_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

_FP32 = 4


class Spread(StrEnum):
    """How the state of a training is spread over cards."""

    DDP = "ddp"
    ZERO_1 = "zero1"
    ZERO_2 = "zero2"
    ZERO_3 = "zero3"
    FSDP = "fsdp"

    @property
    def gathers(self) -> bool:
        """Whether weights are shards, gathered layer by layer."""
        return self in (Spread.ZERO_3, Spread.FSDP)

    @property
    def splits_gradients(self) -> bool:
        """Whether a card keeps the gradients of its own shard only."""
        return self.gathers or self is Spread.ZERO_2


@dataclass(frozen=True, slots=True)
class Setup:
    """How a model is trained.

    Attributes:
        optimizer: TrainingArguments' ``optim`` name.
        gpus: Cards.
        spread: How the state is spread over them; None on a single one.
        master: Whether FSDP's shards, their gradients and the optimizer's state are float32, as accelerate keeps them
            under mixed precision. DeepSpeed always does so for the optimizer's copy.
        four_bit: Whether frozen linear weights are packed to 4 bit.
        widened: Whether all others are float32 then.
        accumulates: Whether several backwards go before a step, so that gradients stand all along.
        in_turn: Whether the layers stand on the cards one after the other (``device_map="auto"``).
        autocast: The name of the type that forwards compute in under autocast, as torch spells it; None: the weights'.
    """

    optimizer: str
    gpus: int = 1
    spread: Spread | None = None
    master: bool = False
    four_bit: bool = False
    widened: bool = False
    accumulates: bool = False
    in_turn: bool = False
    autocast: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Bytes on one card.

    Attributes:
        weights: Parameters and buffers.
        optimizer: The optimizer's state, and its float32 copy of the weights where it has one.
        gathered: What stands beside the shards: weights that are whole, buckets, a weight taken out of its packing.
        whole: What gathering takes in backward besides, with gradients that wait to be reduced.
        layer_gradients: Gradients of each decoder layer.
        head_gradients: Those that exist before the first layer's backward.
        late_gradients: Those that come last, of the input embeddings.
        step_copies: What the optimizer's step takes for itself.
        moved: Bytes of weights and gradients that a card receives in a step from the others.
    """

    weights: int
    optimizer: int
    gathered: int
    whole: Gathering
    layer_gradients: tuple[int, ...]
    head_gradients: int
    late_gradients: int
    step_copies: int
    moved: int

    @property
    def gradients(self) -> int:
        """All gradients of a step."""
        return sum(self.layer_gradients) + self.head_gradients + self.late_gradients

    @property
    def in_backward(self) -> int:
        """All gradients of a step, with what a layer's backward takes of whole ones, and those that wait for it."""
        return self.gradients + self.whole.head_gradients + self.whole.in_layer

    @property
    def all_along(self) -> int:
        """What stands from the first step's end on, gradients aside."""
        return self.weights + self.optimizer + self.gathered


def standing(model: torch.nn.Module, layers: Sequence[torch.nn.Module], setup: Setup) -> Standing:
    """Count a whole model on the meta device, as one card of ``setup`` will hold it.

    Args:
        model: The model, on the meta device.
        layers: Its decoder layers, in forward order.
        setup: Optimizer, precision and sharding of the run.
    """
    packed = quantised_weights(model) if setup.four_bit else {}
    spread, gpus = setup.spread, setup.gpus
    parts = 1 if spread is None or not spread.gathers else gpus
    whole = _weight_bytes(model, packed)
    trained = [p for p in model.parameters() if p.requires_grad]
    stored = _trained_as(trained, _FP32) - gradient_bytes(trained) if _fsdp_master(setup) else 0
    split = gpus if spread is not None and spread.splits_gradients else 1
    whole_units = _gathering(model, layers, packed, setup)
    wide = 2 if _fsdp_master(setup) and gradient_bytes(trained) < _trained_as(trained, _FP32) else 1
    per_layer = tuple(wide * gradient_bytes(layer.parameters()) // split for layer in layers)
    late = wide * late_gradient_bytes(model) // split
    total = wide * gradient_bytes(trained) // split
    return Standing(
        weights=(whole + stored) // parts,
        optimizer=_optimizer_bytes(trained, setup),
        gathered=_gathered(model, packed, setup) + whole_units.all_along,
        whole=whole_units,
        layer_gradients=per_layer,
        head_gradients=total - sum(per_layer) - late,
        late_gradients=late,
        step_copies=foreach_copies(setup.optimizer) * total,
        moved=_moved(whole, gradient_bytes(trained), setup),
    )


def _fsdp_master(setup: Setup) -> bool:
    return setup.master and setup.spread is Spread.FSDP


def _trained_as(trained: Iterable[torch.nn.Parameter], itemsize: int) -> int:
    return sum(p.numel() * itemsize for p in trained)


def _weight_bytes(model: torch.nn.Module, packed: dict[int, torch.Tensor]) -> int:
    plain = storage_bytes(t for t in (*model.parameters(), *model.buffers()) if id(t) not in packed)
    return plain + sum(packed_bytes(weight.numel()) for weight in packed.values())


def _optimizer_bytes(trained: Sequence[torch.nn.Parameter], setup: Setup) -> int:
    """State, and DeepSpeed's float32 copy of the weights, over as many cards as share it."""
    zero = setup.spread in (Spread.ZERO_1, Spread.ZERO_2, Spread.ZERO_3)
    rule = rule_for(setup.optimizer)
    wide = zero or _fsdp_master(setup)
    state = sum(state_bytes(rule, p.shape, _FP32 if wide else p.element_size()) for p in trained)
    copy = sum(p.numel() * _FP32 for p in trained if p.element_size() < _FP32) if zero else 0
    shared = setup.spread is not None and setup.spread is not Spread.DDP
    return (state + copy) // (setup.gpus if shared else 1)


def _gathered(model: torch.nn.Module, packed: dict[int, torch.Tensor], setup: Setup) -> int:
    """Bytes that stand beside the weights while a step runs, those of gathered units aside."""
    taken_out = max((weight.numel() * weight.element_size() for weight in packed.values()), default=0)
    # DDP's buckets hold a copy of every gradient (gradient_as_bucket_view is off, reducer.cpp).
    return taken_out + (gradient_bytes(model.parameters()) if setup.spread is Spread.DDP else 0)


def _gathering(
    model: torch.nn.Module, layers: Sequence[torch.nn.Module], packed: dict[int, torch.Tensor], setup: Setup
) -> Gathering:
    """What gathering takes where each layer is a unit, and all else another one, as accelerate wraps them for FSDP2.

    ZeRO-3 is taken to gather as much.
    """
    if setup.spread is None or not setup.spread.gathers:
        return Gathering()
    owners: dict[int, list[torch.nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(module)
    units = [
        ShardedUnit(
            tuple(_sharded_weight(p, tuple(owners[id(p)]), packed) for p in parameters),
            computes_in=None,
            reduces_in=None,
            stays_whole=outermost,
            freed=True,
            ranks=setup.gpus,
            replicated=False,
        )
        for outermost, parameters in ((True, _outside(model, layers)), *((False, [*x.parameters()]) for x in layers))
    ]
    return gathering_of(units, layers)


def _sharded_weight(
    parameter: torch.nn.Parameter, owners: tuple[torch.nn.Module, ...], packed: dict[int, torch.Tensor]
) -> ShardedWeight:
    """A weight in the dtype that it computes in; a packed one is stored as so many elements of it."""
    count = parameter.numel()
    if id(parameter) in packed:
        count = packed_bytes(count) // parameter.element_size()
    return ShardedWeight(count, parameter.dtype, parameter.requires_grad, owners)


def _outside(model: torch.nn.Module, layers: Sequence[torch.nn.Module]) -> list[torch.nn.Parameter]:
    inside = {id(p) for layer in layers for p in layer.parameters()}
    return [p for p in model.parameters() if id(p) not in inside]


def _moved(weights: int, gradients: int, setup: Setup) -> int:
    """Weights gathered in forward and backward, gradients reduced; an all-reduce moves them twice."""
    if setup.spread is None:
        return 0
    moved = 2 * weights + gradients if setup.spread.gathers else 2 * gradients
    return moved * (setup.gpus - 1) // setup.gpus
