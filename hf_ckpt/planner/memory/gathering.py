"""What FSDP2 puts on a rank beside its shards: weights that are gathered, gradients that wait to be reduced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ...compat.wrappers import sharded_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...compat.wrappers import ShardedUnit


@dataclass(frozen=True, slots=True)
class Gathering:
    """Bytes on this rank.

    Attributes:
        all_along: What stays whole between forward and backward, and the gather that ran last: FSDP2 holds it until
            the next one ran (``FSDPCommContext.all_gather_state``).
        in_layer: What a layer's backward takes besides: the next layer's gather, its own whole gradients, and those
            that are being reduced (``FSDPCommContext.reduce_scatter_states``).
        head_gradients: Whole gradients of what is outside the layers; they are reduced after those of all layers.
        late_gradients: Those of input embeddings, which come last, and the copy from which all of them are reduced,
            less the weights that are no longer needed then.
        cached: What the stream of the gathers keeps of its largest one, beyond that which is alive: a caching allocator
            gives a block back only to the stream that it was taken for.
    """

    all_along: int = 0
    in_layer: int = 0
    head_gradients: int = 0
    late_gradients: int = 0
    cached: int = 0


def gathering(model: torch.nn.Module, layers: Sequence[torch.nn.Module]) -> Gathering:
    """Count a model's FSDP2 units; nothing where it has none."""
    units = sharded_units(model)
    inside = {id(p) for layer in layers for p in layer.parameters()}
    in_layers = [unit for unit in units if any(id(p) in inside for p in unit.parameters)]
    outside = [unit for unit in units if not any(id(p) in inside for p in unit.parameters)]
    stays = sum(_whole(unit) for unit in units if unit.stays_whole)
    late = sum(_gradients(unit, _embeddings(model)) for unit in outside)
    copies = max((_reduced(unit) - (_whole(unit) if unit.stays_whole else 0) for unit in outside), default=0)
    last = max((_whole(unit) for unit in units if not unit.stays_whole), default=0)
    return Gathering(
        all_along=stays + last,
        in_layer=max(map(_in_backward, in_layers), default=0),
        head_gradients=sum(map(_gradients, outside)) - late,
        late_gradients=max(0, late + copies),
        cached=max(map(_whole, units), default=0) - last,
    )


def _in_backward(unit: ShardedUnit) -> int:
    return (0 if unit.stays_whole else _whole(unit)) + _gradients(unit) + _reduced(unit)


def _whole(unit: ShardedUnit) -> int:
    return sum(p.numel() * (unit.computes_in or p.dtype).itemsize for p in unit.parameters)


def _gradients(unit: ShardedUnit, among: Iterable[int] | None = None) -> int:
    chosen = None if among is None else set(among)
    trained = (p for p in unit.parameters if p.requires_grad and (chosen is None or id(p) in chosen))
    return sum(p.numel() * (unit.computes_in or p.dtype).itemsize for p in trained)


def _reduced(unit: ShardedUnit) -> int:
    dtype = unit.reduces_in or unit.computes_in
    return sum(p.numel() * (dtype or p.dtype).itemsize for p in unit.parameters if p.requires_grad)


def _embeddings(model: torch.nn.Module) -> set[int]:
    """The weights of embeddings that the loss head does not share."""
    tables = {id(p) for m in model.modules() if isinstance(m, torch.nn.Embedding) for p in m.parameters(recurse=False)}
    others = (m for m in model.modules() if not isinstance(m, torch.nn.Embedding))
    return tables - {id(p) for m in others for p in m.parameters(recurse=False)}
