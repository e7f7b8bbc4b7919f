"""Studies the model of a command: metadata of its layers, rates and memory of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import torch

from ..anatomy import read_anatomy
from ..head.install import obstacle
from ..head.shape import head_shape
from ..measuring.dry_run import dry_ledgers
from ..measuring.forecast import ForecastInputs
from ..planner.budget import DeviceMemory, PeakBudget, parse_budget
from ..planner.calibrate import calibration
from ..planner.device_memory import device_memory
from ..planner.state import static_state
from ..policy.resolve import ResolvedPolicy, resolve
from ..resolving import read_platform
from .model import build_model, token_ids
from .optimizer import check_optimizer
from .positions import fit_length

if TYPE_CHECKING:
    from ..policy import Policy
    from ..policy.decision import Stack
    from ..policy.platform import Platform
    from .subject import Subject


@dataclass(frozen=True, slots=True)
class Study:
    """What a command knows of the model it speaks about.

    Attributes:
        subject: The model and the size of its batch.
        stacks: All of its stacks of decoder layers.
        platform: What a policy on it has to work with.
        inputs: What a forecast reads, for the stacks that run on token ids.
    """

    subject: Subject
    stacks: tuple[Stack, ...]
    platform: Platform
    inputs: ForecastInputs

    def resolve(self, policy: Policy) -> ResolvedPolicy:
        """The policy on this model, as ``hf_ckpt.apply`` resolves it. Raises PolicyError and ModelStructureError."""
        return resolve(policy, self.stacks, self.platform)


def study(subject: Subject, memory: str | None, optimizer: str) -> Study:
    """Build the model on the meta device and trace its layers.

    Args:
        subject: The model, and the size of its batch.
        memory: Memory of the device to plan for, with its unit; None: this machine's.
        optimizer: TrainingArguments' ``optim`` name.

    Returns:
        The study; its subject has the length that the model's positions allow.

    Raises:
        CkptError: there is no such model, or its length cannot be.
        BadParameter: the optimizer or the size of memory cannot be.
    """
    check_optimizer(optimizer)
    model = build_model(subject, "meta")
    subject = fit_length(subject, model)
    anatomy = read_anatomy(model)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    inputs = _forecast_inputs(subject, model, device, _total(memory, device), optimizer)
    return Study(subject, anatomy.stacks, read_platform(model, device=device), inputs)


def _forecast_inputs(
    subject: Subject, model: torch.nn.Module, device: torch.device, total: int | None, optimizer: str
) -> ForecastInputs:
    anatomy = read_anatomy(model).main()  # token ids reach no vision tower
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return ForecastInputs(
        anatomy=anatomy,
        ledgers=dry_ledgers(model, anatomy, token_ids(subject, model, "meta"), device),
        head=head_shape(model, subject.batch * subject.length),
        chunkable=obstacle(model) is None,
        rates=calibration(device),
        memory=DeviceMemory(total, weights),
        to_come=static_state(model, optimizer).to_come,
    )


def _total(memory: str | None, device: torch.device) -> int | None:
    if memory is None:
        return device_memory(device).total
    budget = parse_budget(memory)
    if not isinstance(budget, PeakBudget):
        raise click.BadParameter(f"{memory!r} is not a size with its unit, such as 80GiB", param_hint="--memory")
    return budget.nbytes
