"""DeepSpeed's ``activation_checkpointing`` section, which transformers' models never read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..check import Check, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts import StartFacts


class DeepspeedSection(Check):
    """Seen in the configuration."""

    code = "CKPT207"
    name = "deepspeed-checkpointing-section"

    def at_start(self, facts: StartFacts) -> Iterator[Trouble]:
        """Where the section is there."""
        if "activation_checkpointing" in _configuration(facts.settings.get("deepspeed")):
            yield self.trouble(
                "the `activation_checkpointing` section of the DeepSpeed configuration has no effect on a transformers "
                "model: remove it, the policy decides what is recomputed"
            )


def _configuration(given: Any) -> Any:
    if isinstance(given, str) and Path(given).is_file():
        return json.loads(Path(given).read_text(encoding="utf-8"))
    return given if isinstance(given, dict) else {}
