"""Parameters that became trainable on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found

if TYPE_CHECKING:
    from ..evidence import Evidence


class MoreTrained(Cause):
    """Their gradients, their optimizer state and what their layers save come on top."""

    name = "more-trained"

    def find(self, evidence: Evidence) -> Found | None:
        """Count what is trained now and when training began."""
        now, before = evidence.trained
        if now <= before or not evidence.fitted:
            return None
        census = evidence.census
        return Found(
            self.name,
            f"{now:,} numbers of the model are trained, {before:,} were when training began",
            f"their gradients and optimizer state need {decimal(census.gradients_to_come + census.optimizer_to_come)} "
            "more: unfreeze fewer layers",
            census.gradients_to_come + census.optimizer_to_come,
        )
