"""The policy under which a batch would have fitted, by forecast on metadata: nothing runs, nothing is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from rich.filesize import decimal
from torch.utils._python_dispatch import _disable_current_modes

from ...anatomy import read_anatomy
from ...devices.cards import card_named
from ...head.install import obstacle
from ...head.shape import head_shape
from ...measuring.dry_run import dry_ledgers
from ...measuring.forecast import ForecastInputs, Growing, forecast
from ...planner.budget import MARGIN, DeviceMemory
from ...planner.calibration import store
from ...planner.calibration.calibrate import describe
from ...planner.memory.state import gradient_bytes, late_gradient_bytes
from ...policy import parse_policy
from ...policy.resolve import resolve
from ...resolving import read_platform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...anatomy import Anatomy
    from ...planner.batches.per_batch import BatchSize
    from ...planner.costs.roofline import Calibration

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


def fitting_policy(model: torch.nn.Module, size: BatchSize, stands: Stands, policy: str) -> str | None:
    """A line with another policy than ``policy`` that fits, the one that recomputes least; None where none does.

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
            inputs = _inputs(model, rows, length, stands)
            for name, peak in _forecasts(model, inputs, policy):
                if peak + stands.used + stands.to_come <= (1 - MARGIN) * stands.total:
                    return (
                        f"By forecast {decimal(peak + stands.used + stands.to_come)} are enough for this batch with "
                        f'callbacks=[SelectiveCkpt("{name}")].'
                    )
    finally:
        model.train(training)
    return None


def _forecasts(model: torch.nn.Module, inputs: ForecastInputs, policy: str) -> Iterator[tuple[str, int]]:
    platform = read_platform(model)
    for name in _POLICIES:
        if name != policy and (inputs.chunkable or "head" not in name):
            yield name, forecast(inputs, resolve(parse_policy(name), inputs.anatomy.stacks, platform)).peak


def _inputs(model: torch.nn.Module, rows: int, length: int, stands: Stands) -> ForecastInputs:
    anatomy = read_anatomy(model).reached_by_tokens()
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
