"""A model that was told something else about activation checkpointing than the Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts


#: torch's own, of what a model may have been told.
_USUAL = {"use_reentrant": False, "preserve_rng_state": True}


class OverriddenSettings(Check):
    """Seen in the layers before the Trainer was built, and in the arguments."""

    code = "CKPT202"
    name = "trainer-overrides-model-checkpointing"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """Where a setting of the model is another one in the arguments."""
        asked = facts.settings.get("activation_checkpointing") or facts.settings.get("gradient_checkpointing")
        if facts.built.kwargs is None or not asked:
            return
        given = facts.settings.get("activation_checkpointing_kwargs")
        given = _USUAL | (given or facts.settings.get("gradient_checkpointing_kwargs") or {})
        lost = {name: value for name, value in facts.built.kwargs.items() if given.get(name) != value}
        if lost:
            yield self.trouble(
                f"the model was told {lost!r} for its activation checkpointing, and the Trainer enables it again with "
                f"{ {name: given.get(name) for name in lost}!r}: say it in TrainingArguments only"
            )
