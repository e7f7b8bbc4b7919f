"""Module buffers that the recompute writes a second time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class StateUpdatedTwice(Check):
    """Seen in the buffers' version counters, which moved while backward ran."""

    code = "CKPT106"
    name = "running-statistics-in-checkpoint"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """All such buffers in one sentence."""
        if facts.rewritten:
            yield self.trouble(
                f"{some_of(facts.rewritten)} were written in backward too, because the recompute runs the forward "
                "that updates them again: leave these layers out of the policy, or freeze their statistics"
            )
