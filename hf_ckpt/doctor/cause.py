"""A cause of running out of memory: one file each in ``causes/``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ..discovery import one_of_each_file

if TYPE_CHECKING:
    from .evidence import Evidence
    from .place import Place


@dataclass(frozen=True, slots=True)
class Found:
    """A cause that was measured.

    Attributes:
        cause: Its name.
        what: What happened, a clause with its figures.
        remedy: What to do, a clause; empty where only a smaller batch or another plan helps.
        nbytes: Bytes that it explains.
        place: The line of the user's code; None where no line is known.
    """

    cause: str
    what: str
    remedy: str
    nbytes: int
    place: Place | None = None


class Cause(ABC):
    """Something that can change from steps that fit to one that does not."""

    name: str

    @abstractmethod
    def find(self, evidence: Evidence) -> Found | None:
        """The cause with its figures where the evidence measures it, else None."""


@cache
def causes() -> tuple[Cause, ...]:
    """One of each."""
    from . import causes as folder  # late: its files import this one

    return tuple(one_of_each_file(folder, Cause))  # type: ignore[type-abstract]


def find_causes(evidence: Evidence) -> list[Found]:
    """Every cause that the evidence measures, the one that explains most first."""
    found = [cause.find(evidence) for cause in causes()]
    return sorted((one for one in found if one is not None), key=lambda one: -one.nbytes)
