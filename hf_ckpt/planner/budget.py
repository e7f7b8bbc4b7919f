"""Memory budgets: how they are written, and the limits they put on a plan. Pure, no torch.

====================  ==========================================================================================
``72GiB``, ``512MB``  the device's peak, everything included (binary and decimal units, ``80G`` is ``80GB``; on CPU the
                      process's memory)
``0.5``, ``50%``      the share of the bytes that layers hold without checkpointing; less where the device has no
                      room for it
``auto``              what the device has, less a margin (on CPU: the limit the process runs under)
====================  ==========================================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..assignment import Assignment
from ..errors import BudgetError
from .costs.assess import layer_held
from .costs.problem import Limits
from .memory.fragmentation import Spare

if TYPE_CHECKING:
    from .costs.problem import Problem

_UNITS = {"b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    _UNITS |= dict.fromkeys((f"{_prefix}ib", f"{_prefix}i"), 1024**_power)
    # `80G` means 80GB or 80GiB, by whom one asks: the smaller one fits both.
    _UNITS |= dict.fromkeys((f"{_prefix}b", _prefix), 1000**_power)
_NUMBER = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>%|[a-z]*)", re.IGNORECASE)

#: The share of the memory that ``auto`` leaves free: workspaces, what the model does not see.
MARGIN = 0.08
#: The same of a device whose allocator's own overhead is known, and left to it besides (memory/fragmentation.py).
DEVICE_MARGIN = 0.02

#: The part of that which steps may take once plans leave the allocator what it took before.
DEVICE_LENDS = 0.5

NOTHING_SPARE = Spare()


@dataclass(frozen=True, slots=True)
class PeakBudget:
    """At most ``nbytes`` on the device (on CPU: in the process) at any time."""

    nbytes: int

    def __str__(self) -> str:
        """The shortest exact spelling, binary units first."""
        units = ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB", "B")
        exact = [unit for unit in units if self.nbytes % _UNITS[unit.lower()] == 0]
        return min((f"{self.nbytes // _UNITS[unit.lower()]}{unit}" for unit in exact), key=_digits)


def _digits(size: str) -> int:
    return sum(character.isdigit() for character in size)


@dataclass(frozen=True, slots=True)
class ShareBudget:
    """At most this share (0 to 1) of the bytes that the layers hold after forward without checkpointing."""

    share: float

    def __str__(self) -> str:
        return repr(self.share)


@dataclass(frozen=True, slots=True)
class AutoBudget:
    """Whatever the device has, less :data:`MARGIN`."""

    def __str__(self) -> str:
        return "auto"


Budget = PeakBudget | ShareBudget | AutoBudget


def parse_budget(value: str | float) -> Budget:
    """Read a budget from a policy string or keyword.

    Args:
        value: A size with its unit (``"72GiB"``), a share (0.5, ``"50%"``), or ``"auto"``.

    Returns:
        The budget, sizes in bytes.

    Raises:
        BudgetError: It is none of these; the message has the accepted forms.

    Example:
        >>> parse_budget("72GiB")
        PeakBudget(nbytes=77309411328)
    """
    text = str(value).strip()
    if text.lower() == "auto":
        return AutoBudget()
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise BudgetError(_malformed(text))
    number, unit = match["number"], match["unit"].lower()
    if unit in ("", "%"):
        share = float(number) / (100 if unit else 1)
        if not unit and share > 1:
            raise BudgetError(f"{text!r} is a memory budget without a unit: write '{text}GiB', or a share up to 1")
        if not 0 < share <= 1:
            raise BudgetError(_malformed(text))
        return ShareBudget(share)
    if unit not in _UNITS:
        raise BudgetError(_malformed(text))
    nbytes = int(float(number) * _UNITS[unit]) if "." in number else int(number) * _UNITS[unit]
    if nbytes <= 0:
        raise BudgetError(_malformed(text))
    return PeakBudget(nbytes)


def _malformed(text: str) -> str:
    return (
        f"{text!r} is not a memory budget: write a size with its unit ('72GiB', '512MB'), a share of the "
        "uncheckpointed activations above 0 and up to 1 ('0.5', '50%'), or 'auto'"
    )


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device (on CPU: of the process). ``total`` is None where no limit is known.

    ``used`` is what is taken for good: the model, other processes, the context; not what an allocator merely caches.
    ``given`` is what the device has given out, with what is cached; None where no allocator caches anything.
    ``refused`` counts how often the device had nothing left to give.
    """

    total: int | None
    used: int
    given: int | None = None
    refused: int = 0


def allowed_bytes(budget: Budget, memory: DeviceMemory) -> int | None:
    """Bytes that the device (on CPU: the process) may give out under a budget; None where it bounds something else."""
    match budget:
        case PeakBudget(nbytes):
            return nbytes
        case AutoBudget() if memory.total is not None:
            return int(memory.total * (1 - (MARGIN if memory.given is None else DEVICE_MARGIN)))
    return None


def lent(budget: Budget) -> float:
    """The part of what a budget leaves of the device that steps may take: plans aim at less than ``auto`` bears."""
    return DEVICE_LENDS if isinstance(budget, AutoBudget) else 0.0


def most_alive(memory: DeviceMemory, beside: int, spare: Spare) -> int | None:
    """Bytes that may be alive at the peak for ``auto`` to allow it; None where no limit is known.

    Args:
        memory: Bytes of the device.
        beside: Bytes of those at the peak that are there all along.
        spare: What is left to the device's allocator, where it has one.
    """
    room = _room(memory, beside, spare)
    return memory.total if room is None else beside + room


def limits_of(
    budget: Budget, problem: Problem, memory: DeviceMemory, to_come: int, spare: Spare = NOTHING_SPARE
) -> Limits:
    """Turn a budget into limits on plans.

    Args:
        budget: The budget.
        problem: What is planned.
        memory: Bytes of the device.
        to_come: Bytes that will be there at the peak and are not yet: optimizer state, gradients that ``problem`` does
            not count.
        spare: What is left to the device's allocator, where it has one.

    Returns:
        Upper bounds in bytes.

    Raises:
        BudgetError: ``auto`` knows no limit.
    """
    beside = memory.used + to_come
    if isinstance(budget, ShareBudget):
        everything = held_without_checkpointing(problem) + problem.shared
        return Limits(held=int(budget.share * everything) - problem.shared, room=_room(memory, beside, spare))
    total = allowed_bytes(budget, memory)
    if total is None:
        raise BudgetError(
            "budget=auto knows no memory limit here (no accelerator, no cgroup limit, no RLIMIT_AS): "
            "give one, such as budget=16GiB for the process or budget=0.5 of the activations"
        )
    if memory.given is not None:
        beside += spare.of(total - beside)
    return Limits(peak=total - beside, beside=beside)


def _room(memory: DeviceMemory, beside: int, spare: Spare) -> int | None:
    """What a device leaves for activations that its allocator caches; None where none caches, as on CPU."""
    total = None if memory.given is None else allowed_bytes(AutoBudget(), memory)
    return None if total is None else total - beside - spare.of(total - beside)


def held_without_checkpointing(problem: Problem) -> int:
    """Bytes that all layers hold after the forward when everything is kept, less what they share."""
    return sum(
        layer_held(kind, Assignment.where(keep=kind.everything))
        for kind in map(problem.kind, range(len(problem.order)))
    )
