"""A KV cache that a reentrant checkpoint writes a second time in the recompute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StepFacts


class KvCacheInCheckpoint(Check):
    """Seen among the call's arguments."""

    code = "CKPT111"
    name = "kv-cache-in-checkpoint"

    def after_backward(self, facts: StepFacts) -> Iterator[Trouble]:
        """Of each reentrant call that was given one."""
        for call in facts.calls:
            if call.reentrant and call.has_cache:
                yield self.trouble(
                    "this reentrant checkpoint was given a KV cache, into which the recompute writes the keys and "
                    "values again: set use_cache=False",
                    call.place,
                )
