"""The parts of a model that a backward pass runs again, and the weights in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Value, one
from ..events import BlockWrapping, Checkpoint, HfEnable
from ..libraries.enabled import checkpoints_in, wrappers_in
from ..types import unwrapped, whole_model
from .weights import weights_in, weights_of

if TYPE_CHECKING:
    from ...facts.values import Result
    from ..regions.region import Region
    from ..run import Run
    from .weights import Built


def weights_run_again(run: Run, model: Value) -> dict[Built, Result]:
    """What has weights in the parts of ``model`` that a backward pass runs again."""
    found: dict[Built, Result] = {}
    for region in regions_run_again(run, model):
        found |= weights_of(region)
    held = weights_in(model) if any(run.of(HfEnable)) else {}
    for enable in run.of(HfEnable):
        found |= {built: part for built, part in weights_in(whole_model(enable.model)).items() if built in held}
    return found


def regions_run_again(run: Run, model: Value) -> list[Region]:
    """What a backward pass of ``model`` runs again."""
    regions = [run.region(event) for event in (*checkpoints_in(run, model), *wrappers_in(run, model))]
    regions += [run.region(event) for event in run.replayed(Checkpoint) if one(unwrapped(event.function), model)]
    return regions + [run.region(event) for event in run.replayed(BlockWrapping) if one(unwrapped(event.model), model)]
