"""A checkpoint inside something that is recomputed already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class DoubleCheckpointing(Check):
    """Seen in the forward: the one ran while the other did."""

    code = "CKPT402"
    name = "double-checkpointing"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """Of each inner call."""
        for call in facts.calls:
            if call.is_inside:
                yield self.trouble(
                    "this checkpoint runs inside a layer or a checkpoint that is recomputed already, so backward "
                    "computes it once more: remove one of the two",
                    call.place,
                )
