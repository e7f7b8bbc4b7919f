"""A reentrant checkpoint none of whose inputs needs a gradient: its parameters get none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class ReentrantWithoutGradInput(Check):
    """Seen in the call, and in the gradients that are not there."""

    code = "CKPT104"
    name = "reentrant-without-grad-input"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """Of each such call whose parameters all have none."""
        for call in facts.calls:
            if call.reentrant and not call.has_grad_input and call.trained and call.lost == call.trained:
                yield self.trouble(
                    f"no input of this reentrant checkpoint needs a gradient, so {call.lost} trainable parameters in "
                    "it got none: pass use_reentrant=False",
                    call.place,
                )
