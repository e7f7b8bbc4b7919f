"""Changes to a model's instances that can be taken back without a trace."""

from __future__ import annotations

from typing import Any, Protocol


class Change(Protocol):
    """Something done to a model."""

    def undo(self) -> None:
        """Take it back."""


class AttributeChange:
    """Sets an instance attribute; ``undo`` brings back the old one, or its absence."""

    def __init__(self, owner: Any, name: str, value: Any) -> None:
        self.owner = owner
        self.name = name
        self.was_there = name in vars(owner)
        self.before = vars(owner).get(name)
        vars(owner)[name] = value

    def undo(self) -> None:
        """Restore the instance dictionary as it was."""
        if self.was_there:
            vars(self.owner)[self.name] = self.before
        else:
            vars(self.owner).pop(self.name, None)
