"""Calls that other calls led to, seen from the function that two moments of a run share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from ...facts.values import Call, Loop, Place
    from ..history import History
    from .ordering import Moment

    Loops: TypeAlias = tuple[Loop, ...]


class Ways(NamedTuple):
    """How the innermost function that two calls share comes to each of them: its own call first, then inwards."""

    left: list[Call]
    right: list[Call]


def iteration_of(call: Call) -> tuple[object, ...]:
    """What tells one run of a function, and in it one iteration of its loops: calls of one have the same."""
    return call.place.walk, call.place.stack, call.place.loops


def ways_from_shared_function(run: History, left: Call, right: Call) -> Ways | None:
    """How one run of a function comes to both calls; None when no single run is seen to."""
    around = _calls_from_shared_function(run, left, right)
    return Ways([*around.left, left], [*around.right, right]) if around is not None else None


def _calls_from_shared_function(run: History, left: Moment, right: Moment) -> Ways | None:
    """The calls that lead there, outermost first: none to what stands in the shared function itself."""
    here, there = left.place, right.place
    if here.walk != there.walk:
        return None
    if here.stack == there.stack and here.callees == there.callees:
        return Ways([], [])
    depth = _shared_depth(here, there)
    callers = run.callers_of(here), run.callers_of(there)
    return Ways(callers[0][depth:], callers[1][depth:]) if callers[0] is not None and callers[1] is not None else None


def _shared_depth(left: Place, right: Place) -> int:
    calls = zip(left.stack, right.stack, strict=False)
    functions = zip(left.callees, right.callees, strict=False)
    depth = 0
    for (call, other), (function, its) in zip(calls, functions, strict=False):
        if call is not other or function is not its:
            break
        depth += 1
    return depth


def follows(run: History, later: Moment, earlier: Moment) -> bool:
    """Whether one comes after the other in the same iteration of the loops of the function that they share."""
    loops = _loops_of(run, later, earlier)
    return loops is not None and loops[0] == loops[1]


def comes_behind(run: History, later: Moment, earlier: Moment) -> bool:
    """Whether one comes after the other, which a loop may have repeated that is over then."""
    loops = _loops_of(run, later, earlier)
    return loops is not None and loops[0] == loops[1][: len(loops[0])]


def stands_between(run: History, change: Moment, first: Moment, last: Moment) -> bool:
    """Whether ``change`` comes after ``first`` and before ``last``; each of the two may stand in a loop of its own."""
    before, behind, whole = _loops_of(run, change, first), _loops_of(run, last, change), _loops_of(run, last, first)
    if before is None or behind is None or whole is None:
        return False
    if before[0] == before[1] and behind[0] == behind[1]:
        return True
    around = behind[0]
    are_over = around == behind[1][: len(around)] and whole[0] == whole[1][: len(whole[0])]
    return are_over and all(loop in around for loop in before[0] if loop in before[1])


def _loops_of(run: History, later: Moment, earlier: Moment) -> tuple[Loops, Loops] | None:
    """The loops around both in the function that they share; None where no run comes to one after the other."""
    if later.place.walk != earlier.place.walk or later.order <= earlier.order or later.place.excludes(earlier.place):
        return None
    around = _calls_from_shared_function(run, later, earlier)
    if around is None:
        return None
    here: Moment = around.left[0] if around.left else later
    there: Moment = around.right[0] if around.right else earlier
    return here.place.loops, there.place.loops


def call_beside(run: History, moment: Moment, other: Moment) -> Call | None:
    """The call in the function that both share which leads to ``moment``; None when that stands there itself."""
    around = _calls_from_shared_function(run, moment, other)
    return around.left[0] if around is not None and around.left else None
