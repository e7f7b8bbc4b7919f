"""A mode or an adapter that changed between forward and backward: the recompute is another function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

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
                f"the training mode of {', '.join(facts.switched)} changed between forward and backward, so the "
                "recompute is not what the forward was: call `model.eval()` after `loss.backward()`"
            )
        if facts.readapted:
            yield self.trouble(
                f"the active adapters of {facts.readapted[0]}{_others(len(facts.readapted) - 1)} changed between "
                "forward and backward, so the recompute runs others: call `set_adapter` after `loss.backward()`"
            )


def _others(count: int) -> str:
    return f" and {count} more" if count else ""
