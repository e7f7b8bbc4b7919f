"""The state that an optimizer makes in its first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from ..cause import Cause, Found
from ..census.census import Kind
from ..evidence import Phase

if TYPE_CHECKING:
    from ..evidence import Evidence


class OptimizerState(Cause):
    """It is not there while the first forward and backward run."""

    name = "optimizer-state"

    def find(self, evidence: Evidence) -> Found | None:
        """Name it where the optimizer ran, and its state was not complete."""
        to_come = evidence.census.optimizer_to_come
        if evidence.phase is not Phase.OPTIMIZER or not to_come:
            return None
        there = evidence.census.bytes_of.get(Kind.OPTIMIZER, 0)
        return Found(
            self.name,
            f"the optimizer makes {decimal(there + to_come)} of state in its first step",
            'train fewer parameters (LoRA), shard them, or use a smaller state (`optim="adafactor"`, `"adamw_8bit"`)',
            there + to_come,
        )
