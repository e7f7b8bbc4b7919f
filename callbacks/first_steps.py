"""Measures the first steps of a training, until the run has shown that the policy works."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hf_ckpt.measuring.table import head_line
from hf_ckpt.measuring.verdict import check_effect, unseen

if TYPE_CHECKING:
    from hf_ckpt.handle import Handle
    from hf_ckpt.measuring.report import Report

logger = logging.getLogger("hf_ckpt")

#: Layers may sit a step out (layer drop, a batch without images): after so many steps those never seen are given up.
MOST_STEPS = 5


class FirstSteps:
    """Decides which steps are measured, and judges each.

    Attributes:
        report: The latest measured step; None before there is one.
        steps: How many steps were measured.
    """

    def __init__(self) -> None:
        self.report: Report | None = None
        self.steps = 0
        self._measuring = False
        self._proven: set[str] = set()
        self._missing: set[str] = set()

    def before_step(self, handle: Handle) -> None:
        """Start to measure where this step has something to show.

        The first step does. Under a budget it only teaches, so the second one does too, which runs under its own plan.
        Later ones do while there are layers that no step has run yet.
        """
        learned = handle.planner is not None and self.steps == 1
        if self.steps == 0 or ((learned or self._missing) and self.steps < MOST_STEPS):
            handle.start_measuring()
            self._measuring = True

    def after_backward(self, handle: Handle) -> None:
        """Stop to measure, and judge the step.

        Raises:
            NoEffectError: a chosen layer ran and was not replayed; the message names the cause.
        """
        if not self._measuring:
            return
        handle.stop_measuring()
        self._measuring = False
        self.steps += 1
        self.report = report = handle.report()
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
