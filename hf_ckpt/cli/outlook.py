"""Builds the outlook of a subject: metadata of the model, rates and memory of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import torch

from ..anatomy import read_anatomy
from ..dry_run import dry_ledgers
from ..forecast import Outlook
from ..head.shape import head_shape
from ..planner.budget import DeviceMemory, PeakBudget, parse_budget
from ..planner.calibrate import calibration
from ..planner.device_memory import device_memory
from ..planner.state import static_state
from .model import build_model, token_ids

if TYPE_CHECKING:
    from .subject import Subject


def look_at(subject: Subject, memory: str | None, optimizer: str) -> Outlook:
    """The outlook for training ``subject``; ``memory`` is the device's, by default this machine's."""
    model = build_model(subject, "meta")
    anatomy = read_anatomy(model).main()  # token ids reach no vision tower
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    state = static_state(model, optimizer)
    held = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return Outlook(
        anatomy=anatomy,
        ledgers=dry_ledgers(model, anatomy, token_ids(subject, model, "meta"), device),
        head=head_shape(model, subject.batch * subject.length),
        rates=calibration(device),
        memory=DeviceMemory(_total(memory, device), held),
        to_come=state.to_come,
    )


def _total(memory: str | None, device: torch.device) -> int | None:
    if memory is None:
        return device_memory(device).total
    budget = parse_budget(memory)
    if not isinstance(budget, PeakBudget):
        raise click.BadParameter(f"{memory!r} is not a size with its unit, such as 80GiB", param_hint="--memory")
    return budget.nbytes
