"""A checkpoint inside ``functional_call``: the recompute runs with the model's own parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class FunctionalCall(Check):
    """Seen on the stack of the call, with the tensors that were put in."""

    code = "CKPT119"
    name = "functional-call-around-checkpoint"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """Of each such call."""
        for call in facts.calls:
            if call.is_given_values:
                yield self.trouble(
                    "this checkpoint runs inside functional_call with other parameters than the model's own, and the "
                    "recompute in backward runs without them: put the checkpoint around functional_call",
                    call.place,
                )
