"""A mode or an adapter that changed between forward and backward: the recompute is another function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble, some_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class StateSwitched(Check):
    """Seen in the modules before and after the backward."""

    code = "CKPT114"
    name = "state-change-before-backward"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """All such modules in one sentence."""
        if facts.switched:
            yield self.trouble(
                f"the training mode of {some_of(facts.switched)} changed between forward and backward, so the "
                "recompute is not what the forward was: call `model.eval()` after `loss.backward()`",
                facts.switched_at,
            )
        if facts.readapted:
            yield self.trouble(
                f"the active adapters of {some_of(facts.readapted, 1)} changed between "
                "forward and backward, so the recompute runs others: call `set_adapter` after `loss.backward()`",
                facts.readapted_at,
            )
