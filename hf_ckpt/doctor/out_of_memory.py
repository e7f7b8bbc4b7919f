"""Diagnoses an out-of-memory error while the frames it went through still hold what they held."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils.memory import should_reduce_batch_size

from ..planner.explain.page import memory_page
from .cause import Found, find_causes
from .census.take import take_census
from .evidence import Evidence, Phase
from .paragraph import paragraph
from .place import innermost_place
from .remedies.batch import smaller_batch
from .remedies.plan import Stands, fitting_policy
from .usage import read_usage
from .watch import trainable_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..planner.explain.page import Chart
    from .remedies.plan import WouldFit
    from .usage import Usage
    from .watch import Watch

logger = logging.getLogger("hf_ckpt.doctor")

_SIZE = r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGT]?i?B|bytes)"
# The words of c10/cuda/CUDACachingAllocator.cpp, and of every allocator that was written after it.
_ASKED = re.compile(rf"[Tt]ried to allocate {_SIZE}")
_LIVE = re.compile(rf"{_SIZE} is allocated by PyTorch")
_CARD = re.compile(r"\bGPU (?P<index>\d+) has a total")
_UNITS = {"B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What an out-of-memory error came from: the evidence, its causes, and the paragraph that says so.

    ``charts`` are memory over the step by forecast, under the policy that did not fit and under one that does.
    """

    evidence: Evidence
    causes: tuple[Found, ...]
    text: str
    charts: tuple[Chart, ...] = ()

    def html(self) -> str:
        """A page of its own with the paragraph and the charts, to be written into a file."""
        title = f"Out of memory in the {self.evidence.phase}"
        return memory_page(title, self.charts, self.evidence.usage.total, self.text)


@dataclass(frozen=True, slots=True)
class Patient:
    """A run that may end in such an error.

    Attributes:
        watch: What is known of its steps.
        optimizer: Returns its optimizer, or None.
        owners: Returns objects whose attributes may hold tensors.
        policy: The policy it runs under.
    """

    watch: Watch
    optimizer: Callable[[], Any]
    owners: Callable[[], Iterable[object]]
    policy: str = ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the CPU, had no more memory."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, Exception) and should_reduce_batch_size(error) and "memory" in str(error)


def diagnose(patient: Patient, error: BaseException, phase: Phase | None = None) -> Diagnosis | None:
    """Say what held the memory and why, in the log, whatever happens; None when ``error`` is another one.

    Nothing is raised here: an error that a diagnosis meets itself is only logged for debugging.

    Args:
        patient: The training that is diagnosed.
        error: What it raised.
        phase: Where in the step; read off the run when it is None.
    """
    try:
        if not is_out_of_memory(error):
            return None
        evidence = read_evidence(patient, error, phase)
        causes = tuple(find_causes(evidence))
        fits = _would_fit(patient, evidence) if _is_of_batch(evidence, causes) else None
        found = Diagnosis(
            evidence,
            causes,
            paragraph(evidence, causes, _remedies(evidence, causes, fits)),
            () if fits is None else fits.charts,
        )
        logger.error("%s", found.text)
    except Exception:
        logger.debug("no diagnosis of the out-of-memory error", exc_info=True)
        return None
    return found


def read_evidence(patient: Patient, error: BaseException | None, phase: Phase | None = None) -> Evidence:
    """Look at the run as it is now; without an error, before one comes.

    Args:
        patient: The training that is diagnosed.
        error: What it raised, if anything.
        phase: Where in the step; read off the run when it is None.
    """
    watch = patient.watch
    device = exhausted_device(error, watch.device)
    usage = _usage_at(error, read_usage(device))
    evidence = Evidence(
        phase=phase or (Phase.FORWARD if watch.in_forward else Phase.BACKWARD),
        asked=None if error is None else bytes_in(_ASKED, str(error)),
        usage=usage,
        start=watch.start,
        census=take_census(watch, patient.optimizer(), patient.owners(), usage, error, device),
        fitted=tuple(watch.history.fitted),
        most=dict(watch.history.most),
        first=watch.history.first,
        step=watch.history.current,
        waiting=0 if watch.history.current is None else watch.history.current.most_waiting,
        trained=(trainable_numbers(watch.model), watch.trainable),
        place=innermost_place(error),
    )
    return evidence if device == watch.device else evidence.on_another_card(str(device))


def exhausted_device(error: BaseException | None, watched: torch.device) -> torch.device:
    """The device that had no more memory: with ``device_map`` over several cards the error names it."""
    found = _CARD.search(str(error)) if watched.type == "cuda" else None
    if found is None or int(found["index"]) == (watched.index or 0):
        return watched
    return torch.device("cuda", int(found["index"]))


def _is_of_batch(evidence: Evidence, causes: Sequence[Found]) -> bool:
    """Whether the size of the batch is what matters."""
    return evidence.phase in (Phase.FORWARD, Phase.BACKWARD) and not (causes and causes[0].remedy)


def _remedies(evidence: Evidence, causes: Sequence[Found], fits: WouldFit | None) -> list[str]:
    """What would have fitted, where the size of the batch is what matters."""
    if not _is_of_batch(evidence, causes):
        return []
    lines = (None if fits is None else fits.line, smaller_batch(evidence))
    return [line for line in lines if line is not None]


def _would_fit(patient: Patient, evidence: Evidence) -> WouldFit | None:
    size, step, total = evidence.size, evidence.step, evidence.usage.total
    if size is None or step is None or step.live is None or total is None:
        return None
    stands = Stands(total - evidence.usage.others, step.live, evidence.census.optimizer_to_come)
    try:
        return fitting_policy(patient.watch.model, size, stands, patient.policy)
    except Exception:
        logger.debug("no forecast for this batch", exc_info=True)
        return None


def _usage_at(error: BaseException | None, now: Usage) -> Usage:
    """What was used when the error came up: some of it is gone since, with the calls that the error ended."""
    live = None if error is None else bytes_in(_LIVE, str(error))
    return now if live is None else replace(now, live=max(live, now.live), unused=max(0, now.unused - live + now.live))


def bytes_in(pattern: re.Pattern[str], message: str) -> int | None:
    """A number of bytes in an error's message; None where it is not there."""
    match = pattern.search(message)
    return None if match is None else int(float(match["number"]) * _UNITS.get(match["unit"], 1))
