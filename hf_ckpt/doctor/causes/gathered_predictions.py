"""An evaluation that gathers its predictions on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found
from ..census.census import Kind
from ..evidence import Phase

if TYPE_CHECKING:
    from ..evidence import Evidence


class GatheredPredictions(Cause):
    """The Trainer keeps the logits of all evaluation batches there until the end, unless it is told otherwise."""

    name = "gathered-predictions"

    def find(self, evidence: Evidence) -> Found | None:
        """Read it from the census."""
        nbytes = evidence.census.bytes_of.get(Kind.PREDICTIONS, 0)
        if evidence.phase is not Phase.EVALUATION or not evidence.is_large(nbytes):
            return None
        return Found(
            self.name,
            f"the evaluation has gathered {decimal(nbytes)} of predictions on the device",
            "pass `eval_accumulation_steps=1` or `prediction_loss_only=True` to TrainingArguments, or a "
            "`preprocess_logits_for_metrics` to the Trainer",
            nbytes,
            evidence.place,
        )
