"""Measures the first steps of a training, until the run has shown that the policy works, and those that are logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hf_ckpt.measuring.report import head_line
from hf_ckpt.measuring.verdict import check_effect, unseen

if TYPE_CHECKING:
    from hf_ckpt.handle import Handle
    from hf_ckpt.measuring.report import Report

logger = logging.getLogger("hf_ckpt")

#: Layers may sit a step out (layer drop, a batch without images): after so many steps those never seen are given up.
MOST_STEPS = 5


class FirstSteps:
    """Decides which steps are measured, and judges the first ones.

    Attributes:
        report: The latest measured step; None before there is one.
        steps: How many steps were judged.
        learning: How many steps since the last log recomputed all of a batch so that the planner could measure it.
    """

    def __init__(self) -> None:
        self.report: Report | None = None
        self.steps = 0
        self.learning = 0
        self._measuring = False
        self._judging = False
        self._learned = 0
        self._proven: set[str] = set()
        self._missing: set[str] = set()

    def before_step(self, handle: Handle, *, logged: bool) -> None:
        """Start to measure where this step has something to show, or is ``logged``.

        The first step does. Under a budget it only teaches, so the second one does too, which runs under its own plan.
        Later ones do while there are layers that no step has run yet.
        """
        self._learned = _learned(handle)
        second = handle.planner is not None and self.steps == 1
        self._judging = self.steps == 0 or ((second or bool(self._missing)) and self.steps < MOST_STEPS)
        if self._judging or logged:
            handle.start_measuring()
            self._measuring = True

    def after_backward(self, handle: Handle) -> None:
        """Stop to measure, and judge the step.

        Raises:
            NoEffectError: a chosen layer ran and was not replayed; the message names the cause.
        """
        self.learning += _learned(handle) > self._learned
        if not self._measuring:
            return
        handle.stop_measuring()
        self._measuring = False
        self.report = report = handle.report()
        if not self._judging:
            return
        self.steps += 1
        check_effect(report, handle.anatomy)
        self._proven |= {layer.name for layer in report.layers if layer.ran}
        self._missing = unseen(report, handle.anatomy) - self._proven
        logger.info("%s", report)
        self._tell(report)

    def _tell(self, report: Report) -> None:
        if self.steps == 1:
            for head in report.heads:
                if line := head_line(head):
                    logger.warning("%s", line)
        if self._missing and self.steps == MOST_STEPS:
            logger.warning(
                "policy `%s` is not proven on %s, which did not run in the first %d steps",
                report.policy, ", ".join(sorted(self._missing)), MOST_STEPS,
            )  # fmt: skip


def _learned(handle: Handle) -> int:
    """How many forwards the planner has measured so far."""
    return 0 if handle.planner is None else handle.planner.learning.forwards
