"""The device that a command plans for: this machine's, or a card by its profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import torch

from ..devices.cards import card_named
from ..devices.cuda_ops import CudaOps
from ..devices.profile import differences
from ..errors import DeviceError
from ..planner.calibration.calibrate import calibration, device_name
from ..planner.memory.device_memory import device_memory

if TYPE_CHECKING:
    from ..devices.profile import DeviceProfile
    from ..planner.costs.roofline import Calibration
    from .subject import Subject


@dataclass(frozen=True, slots=True)
class Target:
    """A device to plan for.

    Attributes:
        device: What a policy meets there.
        card: The ops that a trace on the CPU runs in its place; None where the device itself is at hand.
        rates: Its rates.
        total: Its bytes; None where nobody says.
    """

    device: torch.device
    card: CudaOps | None
    rates: Calibration
    total: int | None


def target_named(gpu: str | None, subject: Subject) -> Target:
    """The card of this name, or this machine.

    Args:
        gpu: The name of a profile; None: this machine.
        subject: The model, with its data type and attention.

    Returns:
        The target. Where the card itself is at hand its measured rates replace the profile's, and stderr says which
        differ.

    Raises:
        DeviceError: there is no such profile, or the card cannot compute in this type or with this attention.
    """
    flash = (subject.attention or "").startswith("flash_attention")
    if flash and subject.dtype == "fp32":
        raise DeviceError(f"{subject.attention} computes in 16 bit only: use --dtype bf16 or fp16")
    if gpu is None:
        return _here(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    profile = card_named(gpu)
    if profile.capability < (8, 0) and flash:
        raise DeviceError(f"{profile.title} is too old for {subject.attention}: use --attention sdpa")
    if profile.capability < (8, 0) and subject.dtype == "bf16":
        raise DeviceError(f"{profile.title} has no bfloat16 units, which --dtype bf16 needs: use --dtype fp16")
    if torch.cuda.is_available() and device_name(torch.device("cuda")) == profile.title:
        return _measured(profile)
    return Target(torch.device("cuda"), CudaOps(profile.capability), profile.rates(), int(profile.capacity.value))


def _here(device: torch.device) -> Target:
    return Target(device, None, calibration(device), device_memory(device).total)


def _measured(profile: DeviceProfile) -> Target:
    target = _here(torch.device("cuda"))
    for line in differences(profile, target.rates):
        click.echo(f"hf-ckpt: {line}", err=True)
    return target
