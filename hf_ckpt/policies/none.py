"""``none``: keep every saved tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.decision import Decision, Stack


@dataclass(frozen=True, slots=True)
class NonePolicy(Policy):
    """No activation checkpointing. Memory: everything; added time: nothing."""

    name: ClassVar[str] = "none"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """No layer recomputes anything."""
        return {}
