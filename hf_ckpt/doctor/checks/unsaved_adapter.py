"""Adapter tensors that are trained and would not be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts


class UnsavedAdapter(Check):
    """Seen in what PEFT would save."""

    code = "CKPT110"
    name = "adapter-saved-through-checkpoint-wrappers"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """All of them in one sentence."""
        if facts.unsaved:
            yield self.trouble(
                f"{len(facts.unsaved)} trained adapter tensors would not be saved ({facts.unsaved[0]}, ...), because "
                "checkpoint wrappers stand in their names: use gradient_checkpointing instead of the wrappers"
            )
