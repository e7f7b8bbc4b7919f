"""Settings of an activation checkpointing that is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts


class KwargsWithoutSwitch(Check):
    """Seen in the arguments."""

    code = "CKPT215"
    name = "checkpointing-kwargs-without-switch"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """Where there are settings and no switch."""
        for name in ("activation_checkpointing", "gradient_checkpointing"):
            kwargs = facts.settings.get(f"{name}_kwargs")
            if name in facts.settings:
                if kwargs and not facts.settings[name]:
                    yield self.trouble(f"`{name}_kwargs={kwargs!r}` has no effect while `{name}` is off: drop it")
                return
