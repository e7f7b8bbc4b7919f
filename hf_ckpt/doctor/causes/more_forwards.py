"""More forwards before one backward than in any step that fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..cause import Cause, Found

if TYPE_CHECKING:
    from ..evidence import Evidence


class MoreForwards(Cause):
    """What they save is alive together."""

    name = "more-forwards"

    def find(self, evidence: Evidence) -> Found | None:
        """Compare the forwards that wait with the most that waited in a step that fitted."""
        before = max((step.most_waiting for step in evidence.fitted), default=0)
        if evidence.waiting <= before or not before:
            return None
        return Found(
            self.name,
            f"{evidence.waiting} forwards wait for one backward, in steps that fitted there were {before}",
            "call backward after each forward, or plan for them: `SelectiveCkpt()` counts forwards that wait together",
            evidence.activations * (evidence.waiting - before) // evidence.waiting,
        )
