"""A reentrant checkpoint whose tensors come back inside a dict, a list or an object: they are cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class StructuredOutput(Check):
    """Seen in what the call returned, and in the gradients that are not there."""

    code = "CKPT116"
    name = "structured-output-of-reentrant-checkpoint"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """Of each such call whose parameters all have none."""
        for call in facts.calls:
            cut_off = call.reentrant and call.has_grad_input and not call.is_flat
            if facts.learns and cut_off and 0 < call.trained == call.lost:
                yield self.trouble(
                    "this reentrant checkpoint returns tensors that are not in one flat tuple, so "
                    f"{call.lost} trainable parameters in it got no gradient: pass use_reentrant=False",
                    call.place,
                )
