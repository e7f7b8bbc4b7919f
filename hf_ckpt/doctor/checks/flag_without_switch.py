"""A flag that says activation checkpointing is on, while no layer was switched on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts


class FlagWithoutSwitch(Check):
    """Seen on the model and its config before the Trainer was built."""

    code = "CKPT205"
    name = "checkpointing-flag-assignment"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """Where nothing else switches it on."""
        asked = facts.settings.get("activation_checkpointing") or facts.settings.get("gradient_checkpointing")
        if facts.built.flagged and not asked:
            yield self.trouble(
                f"`{facts.built.flagged[0]} = True` switches no layer on: call "
                "`model.gradient_checkpointing_enable()`, or set it in TrainingArguments"
            )
