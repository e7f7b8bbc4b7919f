"""What one injection did."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """``what`` says where which fault was put; ``problems`` is empty when all went as it has to.

    ``met`` is whether the run came to the fault at all: one that did not is drawn again.
    """

    what: str
    met: bool = True
    problems: list[str] = field(default_factory=list)

    def check(self, holds: bool, problem: str) -> None:
        """Note ``problem`` unless ``holds``."""
        if not holds:
            self.problems.append(problem)

    def same_state(self, before: dict[str, object], after: dict[str, object], when: str) -> None:
        """Note what differs between two states of the thread."""
        for name, value in before.items():
            self.check(after[name] == value, f"{when}: {name} was {value}, is {after[name]}")
