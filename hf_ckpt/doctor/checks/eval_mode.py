"""Layers that are trained in eval mode, where transformers switches activation checkpointing off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class EvalMode(Check):
    """Seen in the layers' own flags while the model trains."""

    code = "CKPT203"
    name = "checkpointing-in-eval-mode"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """All such layers in one sentence."""
        if facts.sleeping:
            yield self.trouble(
                f"{some_of(facts.sleeping)} ran in eval mode with trainable parameters, and eval mode switches "
                "activation checkpointing off there: call `model.train()`",
                facts.sleeping_at,
            )
