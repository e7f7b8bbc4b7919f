"""Checkpointed parameters whose gradients are all zero, or not there: the loss knows nothing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepsFacts


class DetachedOutput(Check):
    """Seen in the gradients of every step, where others of the model are not zero."""

    code = "CKPT121"
    name = "detached-checkpoint-output"

    def after_steps(self, facts: StepsFacts) -> Iterator[Trouble]:
        """Of each call that no other check has a reason for."""
        for call in facts.starved:
            explained = call.reentrant and not (call.has_grad_input and call.is_flat)
            if not explained:
                yield self.trouble(
                    f"the gradients of all {call.trained} trainable parameters in this checkpoint are zero or not "
                    "there: the loss does not depend on what it returns; look for a detach, or a factor of zero",
                    call.place,
                )
