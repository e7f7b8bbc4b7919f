"""Text that is generated in training mode with transformers' activation checkpointing on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class GenerationWhileCheckpointing(Check):
    """Seen in the call of ``generate``."""

    code = "CKPT112"
    name = "generation-while-checkpointing"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """Of each such line."""
        for place in facts.generated:
            yield self.trouble(
                "generate() in training mode with activation checkpointing on runs without its KV cache, so it sees "
                "only the newest token: call `model.eval()` before, and `model.train()` after",
                place,
            )
