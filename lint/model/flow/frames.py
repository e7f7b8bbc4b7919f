"""Calls that other calls led to, seen from the function that two of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...facts.values import Call
    from ..history import History


class Ways(NamedTuple):
    """How the innermost function that two calls share comes to each of them: its own call first, then inwards."""

    left: list[Call]
    right: list[Call]


def ways_from_shared_function(run: History, left: Call, right: Call) -> Ways | None:
    """How one run of a function comes to both calls; None when no single run is seen to."""
    if left.place.walk != right.place.walk:
        return None
    if left.place.stack == right.place.stack and left.place.callees == right.place.callees:
        return Ways([left], [right])
    depth = _shared_depth(left, right)
    ways = Ways(run.path_to(left)[depth:], run.path_to(right)[depth:])
    return ways if ways.left and ways.right else None


def _shared_depth(left: Call, right: Call) -> int:
    places = left.place, right.place
    calls = zip(places[0].stack, places[1].stack, strict=False)
    functions = zip(places[0].callees, places[1].callees, strict=False)
    depth = 0
    for (call, other), (function, its) in zip(calls, functions, strict=False):
        if call is not other or function is not its:
            break
        depth += 1
    return depth


def follows(run: History, later: Call, earlier: Call) -> bool:
    """Whether one comes after the other in the same iteration of the loops of the function that they share."""
    if later.place.walk != earlier.place.walk or later.order <= earlier.order:
        return False
    ways = ways_from_shared_function(run, later, earlier)
    if ways is None or ways.left[0].place.loops != ways.right[0].place.loops:
        return False
    return not later.place.excludes(earlier.place)
