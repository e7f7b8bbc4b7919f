"""Builds the outlook of a subject: metadata of the model, rates and memory of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import torch

from ..anatomy import read_anatomy
from ..head.shape import head_shape
from ..measuring.dry_run import dry_ledgers
from ..measuring.forecast import Outlook
from ..planner.budget import DeviceMemory, PeakBudget, parse_budget
from ..planner.calibrate import calibration
from ..planner.device_memory import device_memory
from ..planner.state import static_state
from .model import build_model, token_ids
from .optimizer import check_optimizer
from .positions import fit_length

if TYPE_CHECKING:
    from .subject import Subject


def look_at(subject: Subject, memory: str | None, optimizer: str) -> tuple[Subject, Outlook]:
    """The outlook for training ``subject``, and the subject at the length it is for.

    ``memory`` is the device's, by default this machine's. Raises CkptError for a model or a length that cannot be, and
    BadParameter for an optimizer or a size of memory that cannot.
    """
    check_optimizer(optimizer)
    model = build_model(subject, "meta")
    subject = fit_length(subject, model)
    anatomy = read_anatomy(model).main()  # token ids reach no vision tower
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    state = static_state(model, optimizer)
    held = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    outlook = Outlook(
        anatomy=anatomy,
        ledgers=dry_ledgers(model, anatomy, token_ids(subject, model, "meta"), device),
        head=head_shape(model, subject.batch * subject.length),
        rates=calibration(device),
        memory=DeviceMemory(_total(memory, device), held),
        to_come=state.to_come,
    )
    return subject, outlook


def _total(memory: str | None, device: torch.device) -> int | None:
    if memory is None:
        return device_memory(device).total
    budget = parse_budget(memory)
    if not isinstance(budget, PeakBudget):
        raise click.BadParameter(f"{memory!r} is not a size with its unit, such as 80GiB", param_hint="--memory")
    return budget.nbytes
