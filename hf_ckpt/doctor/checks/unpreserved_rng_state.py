"""A checkpoint that draws its dropout masks anew in the recompute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class UnpreservedRngState(Check):
    """Seen in the call's arguments, and in the dropout modules that it runs."""

    code = "CKPT108"
    name = "unpreserved-rng-state"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """Of each call with preserve_rng_state=False around a dropout that is on."""
        for call in facts.calls:
            if not call.preserves_rng and call.drops_out:
                yield self.trouble(
                    "this checkpoint has preserve_rng_state=False and a dropout inside, so backward computes gradients "
                    "for other masks than the forward drew: leave preserve_rng_state at True",
                    call.place,
                )
