"""Whether a backward pass follows in the same run of a program, so that what a call computes is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events import Backward

if TYPE_CHECKING:
    from ...facts.values import Call, Place
    from ..events import Event
    from ..history import History


def is_trained(run: History, what: Call | Event) -> bool:
    """Whether a backward pass follows ``what`` before another iteration of a loop begins that is not around it."""
    return any(it.order > what.order and _belongs_to(it.place, what.place) for it in run.of(Backward))


def _belongs_to(backward: Place, computed: Place) -> bool:
    if backward.walk != computed.walk or backward.excludes(computed):
        return False
    return backward.stack != computed.stack or set(backward.loops) <= set(computed.loops)
