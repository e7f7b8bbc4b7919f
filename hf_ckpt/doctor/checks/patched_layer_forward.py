"""A decoder layer's ``forward`` that was replaced on its class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts


class PatchedLayerForward(Check):
    """Seen on the class."""

    code = "CKPT204"
    name = "patched-layer-forward"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """Of each such class, at the function in its place."""
        for patched in facts.patched:
            yield self.trouble(
                f"this function replaced `{patched.class_name}.forward`, and with it transformers' switch for "
                "activation checkpointing: patch the instances instead",
                patched.place,
            )
