"""What FSDP2 puts on a rank beside its shards: weights that are gathered, gradients that wait to be reduced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ...compat.wrappers import sharded_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...compat.wrappers import ShardedUnit, ShardedWeight


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
        summed: What HSDP keeps of each layer until backward ends, beside the gradients of its shards: what ranks with
            the same shards summed (``FSDPParamGroup._all_reduce_state``). Empty where nothing is kept.
        freed: What each layer's backward gives back of ``all_along``, where layers stay whole until then. Empty where
            none do.
    """

    all_along: int = 0
    in_layer: int = 0
    head_gradients: int = 0
    late_gradients: int = 0
    cached: int = 0
    summed: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()


def gathering(model: torch.nn.Module, layers: Sequence[torch.nn.Module], *, accumulates: bool = False) -> Gathering:
    """Count a model's FSDP2 units; nothing where it has none. ``accumulates``: gradients are there beforehand."""
    return gathering_of(sharded_units(model), layers, accumulates=accumulates)


def gathering_of(
    units: Sequence[ShardedUnit], layers: Sequence[torch.nn.Module], *, accumulates: bool = False
) -> Gathering:
    """The same of these units, of which there need not be any yet."""
    place_of = {module: index for index, layer in enumerate(layers) for module in layer.modules()}
    placed = [(unit, _place(unit, place_of)) for unit in units]
    outside = [unit for unit, place in placed if place is None]
    stays = sum(_whole(unit) for unit in units if unit.stays_whole)
    tables = sum(_gradients(unit, filter(_is_table, unit.weights)) for unit in outside)
    copies = max((_reduced(unit) - (_whole(unit) if unit.stays_whole else 0) for unit in outside), default=0)
    last = max((_whole(unit) for unit in units if not unit.stays_whole), default=0)
    summed, freed = [0] * len(layers), [0] * len(layers)
    for unit, place in placed:
        if place is not None:
            summed[place] += _summed(unit, accumulates=accumulates)
            freed[place] += _whole(unit) if unit.stays_whole and unit.freed else 0
    return Gathering(
        all_along=stays + last,
        in_layer=max((_in_backward(unit) for unit, place in placed if place is not None), default=0),
        head_gradients=sum(_gradients(unit, unit.weights) for unit in outside) - tables,
        late_gradients=max(0, tables + copies) + sum(_summed(unit, accumulates=accumulates) for unit in outside),
        cached=max(map(_whole, units), default=0) - last,
        summed=tuple(summed) if any(summed) else (),
        freed=tuple(freed) if any(freed) else (),
    )


def _place(unit: ShardedUnit, place_of: Mapping[torch.nn.Module, int]) -> int | None:
    """The layer in which the unit is; None outside all of them."""
    return next((place_of[owner] for weight in unit.weights for owner in weight.owners if owner in place_of), None)


def _in_backward(unit: ShardedUnit) -> int:
    return (0 if unit.stays_whole else _whole(unit)) + _gradients(unit, unit.weights) + _reduced(unit)


def _whole(unit: ShardedUnit) -> int:
    return sum(weight.elements * (unit.computes_in or weight.dtype).itemsize for weight in unit.weights)


def _gradients(unit: ShardedUnit, among: Iterable[ShardedWeight]) -> int:
    return sum(weight.elements * (unit.computes_in or weight.dtype).itemsize for weight in among if weight.trained)


def _reduced(unit: ShardedUnit) -> int:
    return sum(weight.elements * _reduces_in(unit, weight).itemsize for weight in unit.weights if weight.trained)


def _summed(unit: ShardedUnit, *, accumulates: bool) -> int:
    """Gradients of shards of these dtypes are what was summed, unless they are added to others."""
    kept = (w for w in unit.weights if w.trained and (accumulates or _reduces_in(unit, w) != w.dtype))
    return sum(w.elements // unit.ranks * _reduces_in(unit, w).itemsize for w in kept) if unit.replicated else 0


def _reduces_in(unit: ShardedUnit, weight: ShardedWeight) -> torch.dtype:
    return unit.reduces_in or unit.computes_in or weight.dtype


def _is_table(weight: ShardedWeight) -> bool:
    """Whether it is of an embedding alone, which the loss head does not share."""
    return all(isinstance(owner, torch.nn.Embedding) for owner in weight.owners)
