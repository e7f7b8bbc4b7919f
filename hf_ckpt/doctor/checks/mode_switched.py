"""A training mode that changed between forward and backward: the recompute is another function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class ModeSwitched(Check):
    """Seen in the modules' flags before and after the backward."""

    code = "CKPT114"
    name = "state-change-before-backward"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """All such modules in one sentence."""
        if facts.switched:
            yield self.trouble(
                f"the training mode of {', '.join(facts.switched)} changed between forward and backward, so the "
                "recompute is not what the forward was: call `model.eval()` after `loss.backward()`"
            )
