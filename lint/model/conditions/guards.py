"""The conditions around one place, and what they test."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.places import Guard, Place


def own_guards(place: Place) -> Iterator[Guard]:
    """The conditions around ``place`` inside the function it is in, those of the callers left out."""
    function = place.function
    for guard in place.guards:
        line = getattr(guard.test, "lineno", 0)
        if function is None or function.node.lineno <= line <= (function.node.end_lineno or 0):
            yield guard


def tests_training(guard: Guard) -> bool:
    """Whether the condition is `self.training`, which holds whenever there is a backward pass."""
    return guard.taken and getattr(guard.test, "attr", "") == "training"
