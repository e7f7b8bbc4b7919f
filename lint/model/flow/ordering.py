"""What surely happened before what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...facts.values import Call, Place


class Moment(Protocol):
    """When something happens in a run: a call, a write, an event."""

    @property
    def place(self) -> Place:
        """What is around it."""
        ...

    @property
    def order(self) -> int:
        """Its position in program order."""
        ...


def implies(inner: Place, outer: Place) -> bool:
    """Whether coming to ``inner`` means that every condition around ``outer`` holds."""
    return all(any(mine.test is its.test and mine.taken == its.taken for its in inner.guards) for mine in outer.guards)


def surely_before(first: Call, second: Call) -> bool:
    """Whether ``first`` ran whenever ``second`` runs, as far as one function shows it."""
    same_walk = first.place.walk == second.place.walk and first.order < second.order
    return same_walk and implies(second.place, first.place)
