"""An adapter none of whose parameters is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts


class FrozenAdapter(Check):
    """Seen in the parameters: preparing a model for k-bit training freezes the adapters that are on it already."""

    code = "CKPT123"
    name = "kbit-preparation-after-adapter"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """Where adapters are on the model and nothing is trained."""
        if facts.adapted and not facts.trained:
            yield self.trouble(
                "an adapter is on the model and no parameter is trained: call `prepare_model_for_kbit_training` before "
                "`get_peft_model`"
            )
