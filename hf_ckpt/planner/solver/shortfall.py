"""What is said when no plan fits a budget: what takes it, and the budget that would do. Pure, no torch."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from ..budget import PeakBudget, held_without_checkpointing

if TYPE_CHECKING:
    from ..costs.problem import Limits, Problem

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
#: Shares are told to this many parts.
_PARTS = 1000


def peak_shortfall(limits: Limits, least: int, host: int | None = None) -> str:
    """One sentence for a bound on the peak that is below ``least``, the bytes that the smallest plan has there.

    ``host`` are the bytes of host memory that offload may use, where a plan with more of them would be smaller.
    """
    bound = "" if host is None else f", as offload may use no more than {readable(host)} of this host's memory"
    return (
        f"no plan fits the budget: {readable(limits.beside)} are taken by the model, its gradients and its optimizer, "
        f"and the smallest plan adds {readable(least)} at its peak{bound}; raise it to "
        f"budget={_written(limits, least)}, shorten the batch or shard the model"
    )


def held_shortfall(problem: Problem, least: int) -> str:
    """One sentence for a bound on held bytes that is below ``least``, what the smallest plan holds."""
    whole, held = held_without_checkpointing(problem) + problem.shared, least + problem.shared
    share = min(_PARTS, _PARTS * held // max(1, whole) + 1) / _PARTS
    return (
        f"no plan fits the budget: the smallest one holds {readable(held)} after the forward, of "
        f"{readable(whole)} without checkpointing; raise it to budget={share}"
    )


def room_shortfall(room: int, peak: int, least: int) -> str:
    """One sentence for a device with ``room`` bytes for activations and a plan of ``peak``; any takes ``least``."""
    plan, remedy = ("the smallest plan", "") if peak <= least else ("the plan of this budget", "lower the budget, ")
    return (
        f"the device may run out of memory: {plan} adds {readable(peak)} at its peak, and the model, its "
        f"gradients and its optimizer leave {readable(max(0, room))}; {remedy}shorten the batch or shard the model"
    )


def readable(nbytes: int) -> str:
    """Bytes in the largest binary unit that fits, to two decimals."""
    for unit, size in (("GiB", _GIB), ("MiB", _MIB), ("KiB", _KIB)):
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} bytes"


def _written(limits: Limits, least: int) -> PeakBudget:
    """The least budget in whole MiB (KiB below 10 MiB) in which ``least`` bytes of activations fit."""
    nbytes = limits.beside + least
    unit = _MIB if nbytes >= 10 * _MIB else _KIB
    return PeakBudget(ceil(nbytes / unit) * unit)
