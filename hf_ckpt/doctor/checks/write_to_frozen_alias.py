"""A deprecated argument that was written after TrainingArguments were built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts

# Not the names of the settings: TRL itself writes the old one.
_OLD, _NEW = "gradient_checkpointing", "activation_checkpointing"


class WriteToFrozenAlias(Check):
    """Seen in the arguments: both names hold the same when they are built (transformers 5.23 and later)."""

    code = "CKPT201"
    name = "write-to-frozen-alias"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """Where the two hold different things now."""
        old, new = facts.settings.get(_OLD), facts.settings.get(_NEW, facts.settings.get(_OLD))
        if old != new:
            yield self.trouble(
                f"`args.{_OLD}` is {old!r} and `args.{_NEW}` is {new!r}: the Trainer reads only the second, so set that"
            )
