"""The policy under which a batch would have fitted, by forecast on metadata: nothing runs, nothing is allocated."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from rich.filesize import decimal
from torch.utils._python_dispatch import _disable_current_modes

from ...anatomy import read_anatomy
from ...devices.cards import card_named
from ...errors import CkptError
from ...head.install import obstacle
from ...head.shape import head_shape
from ...measuring.dry_run import dry_ledgers
from ...measuring.forecast import ForecastInputs, Growing, as_solution, forecast, parts
from ...planner.budget import MARGIN, DeviceMemory
from ...planner.calibration import store
from ...planner.calibration.calibrate import describe
from ...planner.explain.page import Chart, on_top_of
from ...planner.memory.state import gradient_bytes, late_gradient_bytes
from ...policy import parse_policy
from ...policy.resolve import resolve
from ...resolving import read_platform

if TYPE_CHECKING:
    from ...anatomy import Anatomy
    from ...planner.batches.per_batch import BatchSize
    from ...planner.costs.roofline import Calibration
    from ...policy.platform import Platform

#: From the least recomputation to the most.
_POLICIES = ("full", "full+head(8)", "full+head(32)")
#: Rates order plans, and say nothing about bytes: those of any card do where this device was never measured.
_ANY_CARD = "a100"


@dataclass(frozen=True, slots=True)
class Stands:
    """What stands beside the activations of a step: ``used`` bytes of ``total``, and ``to_come`` at its peak."""

    total: int
    used: int
    to_come: int


@dataclass(frozen=True, slots=True)
class WouldFit:
    """By forecast.

    Attributes:
        line: A line with a policy that fits; None where none does.
        charts: Memory over the step, under the policy that did not fit and under the one that does.
    """

    line: str | None
    charts: tuple[Chart, ...]


def fitting_policy(model: torch.nn.Module, size: BatchSize, stands: Stands, policy: str) -> WouldFit | None:
    """Another policy than ``policy`` that fits, the one that recomputes least; None where nothing can be forecast.

    Args:
        model: The model, without a policy.
        size: The batch.
        stands: What the device holds beside it.
        policy: The policy that did not fit.
    """
    rows, length = size.measures.get("rows", 0), size.measures.get("length", 0)
    if not rows or size.media or size.target_tokens:
        return None
    training = model.training
    try:
        with _disable_current_modes():  # what watches operators has no part in this
            anatomy = read_anatomy(model)
            inputs = _inputs(model, anatomy.reached_by_tokens(), rows, length, stands)
            return _would_fit(inputs, read_platform(model, anatomy), stands, policy)
    finally:
        model.train(training)


def _would_fit(inputs: ForecastInputs, platform: Platform, stands: Stands, policy: str) -> WouldFit:
    line, charts = None, _charts(inputs, platform, stands, policy)
    for name in _POLICIES:
        if name == policy or not (inputs.chunkable or "head" not in name):
            continue
        peak = forecast(inputs, resolve(parse_policy(name), inputs.anatomy.stacks, platform)).peak
        if peak + stands.used + stands.to_come <= (1 - MARGIN) * stands.total:
            line = (
                f"By forecast {decimal(peak + stands.used + stands.to_come)} are enough for this batch with "
                f'callbacks=[SelectiveCkpt("{name}")].'
            )
            charts += _charts(inputs, platform, stands, name)
            break
    return WouldFit(line, charts)


def _charts(inputs: ForecastInputs, platform: Platform, stands: Stands, name: str) -> tuple[Chart, ...]:
    """The step under one policy; none where it has no forecast (a budget that is too small, segments)."""
    if not name:
        return ()
    with suppress(CkptError):
        taken = parts(*as_solution(inputs, resolve(parse_policy(name), inputs.anatomy.stacks, platform)))
        return (Chart(f"{name}, by forecast", on_top_of(stands.used + stands.to_come, taken)),)
    return ()


def _inputs(model: torch.nn.Module, anatomy: Anatomy, rows: int, length: int, stands: Stands) -> ForecastInputs:
    device = next(model.parameters()).device
    ids = torch.empty((rows, length), dtype=torch.int64, device="meta")
    return ForecastInputs(
        anatomy=anatomy,
        ledgers=dry_ledgers(model, anatomy, ids, device),
        head=head_shape(model, rows * length),
        chunkable=obstacle(model) is None,
        rates=_rates(device),
        memory=DeviceMemory(stands.total, stands.used),
        to_come=stands.to_come,
        growing=_growing(model, anatomy),
    )


def _growing(model: torch.nn.Module, anatomy: Anatomy) -> Growing:
    layers = tuple(gradient_bytes(layer.module.parameters()) for layer in anatomy.layers)
    late = late_gradient_bytes(model)
    return Growing(layers, gradient_bytes(model.parameters()) - sum(layers) - late, late)


def _rates(device: torch.device) -> Calibration:
    known: Any = store.load(describe(device), store.cache_folder())
    rates: Calibration = known or card_named(_ANY_CARD).rates()
    return rates
