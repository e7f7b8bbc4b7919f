"""Says once, before it happens, that memory will end at some step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rich.filesize import decimal

from .cause import find_causes
from .evidence import Phase
from .harmless import harmless
from .out_of_memory import read_evidence
from .paragraph import causes_in_words
from .trend import LEAST, find_trend
from .usage import read_usage

if TYPE_CHECKING:
    from .out_of_memory import Patient
    from .trend import Trend

logger = logging.getLogger("hf_ckpt.doctor")

#: Steps from one look to the next: a look costs as much as some hundred numbers do.
EVERY = 4


class Outlook:
    """Looks at the history of a run every few steps.

    Attributes:
        trend: What was told; None as long as there was nothing to tell.
    """

    def __init__(self, patient: Patient) -> None:
        self.patient = patient
        self.trend: Trend | None = None
        self._steps = 0

    def look(self, last_step: int) -> None:
        """A step begins; ``last_step`` is the last one of the run. Nothing is raised."""
        self._steps += 1
        if self.trend is not None or self._steps < LEAST or self._steps % EVERY:
            return
        with harmless("outlook on memory"):
            self._look(last_step)

    def _look(self, last_step: int) -> None:
        watch = self.patient.watch
        lives = [(step, live) for step, live in watch.history.lives if step > watch.history.first + 1]
        if len(lives) < LEAST or lives[-1][1] <= lives[0][1]:
            return
        usage = read_usage(watch.device)
        if usage.total is None:
            return
        trend = find_trend(lives, watch.history.passing, usage.total - usage.others)
        if trend is None or trend.out_at > last_step:
            return
        self.trend = trend
        logger.warning("%s", self._words(trend, last_step))

    def _words(self, trend: Trend, last_step: int) -> str:
        evidence = read_evidence(self.patient, None, Phase.FORWARD)
        first = (
            f"Memory will run out at about step {trend.out_at:,} of {last_step:,}: since step {trend.since:,} each "
            f"step leaves {decimal(int(trend.per_step))} more alive."
        )
        return " ".join([first, *causes_in_words(find_causes(evidence))])
