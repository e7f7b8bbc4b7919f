"""A check of a running training: one file each in ``checks/``, under the code of a rule of ckpt-lint."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ..discovery import one_of_each_file
from ..pages import explained_at, rule_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .facts import StartFacts, StepFacts, StepsFacts
    from .place import Place


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that a run was seen to do wrong.

    Attributes:
        code: The code of ckpt-lint's rule about it.
        name: The rule's name.
        what: What was seen, and what to do: sentences.
        place: The line of the user's code; None where no line is known.
    """

    code: str
    name: str
    what: str
    place: Place | None = None

    @property
    def page(self) -> str:
        """Where the rule's page is."""
        return rule_page(self.code, self.name)

    def __str__(self) -> str:
        at = "" if self.place is None else f"{self.place}: "
        return f"{at}{self.code} {self.what} ({explained_at(self.code, self.name)})"


class Check(ABC):
    """Judges what was observed. ``code`` and ``name`` are those of ckpt-lint's rule about the same mistake."""

    code: str
    name: str

    def at_start(self, facts: StartFacts) -> Iterable[Trouble]:
        """What is wrong before the first step."""
        return ()

    def after_backward(self, facts: StepFacts) -> Iterable[Trouble]:
        """What a forward and its backward did wrong."""
        return ()

    def after_steps(self, facts: StepsFacts) -> Iterable[Trouble]:
        """What shows in several steps only."""
        return ()

    def trouble(self, what: str, place: Place | None = None) -> Trouble:
        """The trouble under this check's code."""
        return Trouble(self.code, self.name, what, place)


def some_of(names: Sequence[str], shown: int = 3) -> str:
    """The first of the names, and how many there are more: a large model has hundreds of layers."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


@cache
def checks() -> tuple[Check, ...]:
    """One of each, by code."""
    from . import checks as folder  # late: its files import this one

    return tuple(sorted(one_of_each_file(folder, Check), key=lambda check: check.code))
