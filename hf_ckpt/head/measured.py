"""Whether a loss head that should run in chunks did, in the measured step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .install import HeadHandle, HeadUse


@dataclass(frozen=True, slots=True)
class HeadReport:
    """A loss head. ``asked``: the policy names it (else the planner chose it); ``losses``: how many were in chunks.

    ``left_alone`` says why it was never put on, ``problem`` why it was put on and did nothing; mostly both are empty.
    """

    chunks: int
    asked: bool
    losses: int
    left_alone: str = ""
    problem: str = ""


class MeasuredHead:
    """Counts what a head did between its making and :meth:`report`."""

    def __init__(self, head: HeadHandle, *, asked: bool) -> None:
        self.head = head
        self.asked = asked
        self._before = head.use

    def report(self) -> HeadReport | None:
        """What the head did; None while the planner runs it as the model does."""
        if self.head.paused:
            return None
        now = self.head.use
        problem = _problem(self._before, now) if self.head.active else ""
        losses = now.losses - self._before.losses
        return HeadReport(self.head.chunks, self.asked, losses, self.head.reason or "", problem)


def _problem(before: HeadUse, now: HeadUse) -> str:
    if now.losses > before.losses:
        return ""
    if now.forwards == before.forwards:
        return (
            "no training forward was given `labels`, so the model computed no loss of its own (TRL's SFTTrainer "
            "computes it in chunks already and needs no head(chunks); label_smoothing_factor, a compute_loss or "
            "compute_loss_func that takes the labels, and fused losses do so too): let the model compute its loss, or "
            "drop head(chunks)"
        )
    if now.deferred == before.deferred:
        return (
            "its logits could not be put off (they are float16, the head's weights are sharded, or a fused loss never "
            "calls the head): train in bfloat16 with the model's own loss, or drop head(chunks)"
        )
    return (
        "the loss was not computed from the model's logits by its own loss function (something read the logits first, "
        "or replaced that function): let the model compute its loss, or drop head(chunks)"
    )
