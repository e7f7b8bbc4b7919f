"""Whether a backward pass follows in the same run of a program, so that what a call computes is trained."""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...facts.values import Class, Function, Instance, Method, equals, options
from ..events import Backward
from ..tensors.tensor_changes import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Call, Loop, Place
    from ..events import Event
    from ..history import History

#: Names of functions that train what they get.
_TRAINS = re.compile(r"fit|train|tun|learn|epoch|optimi[sz]e|run|launch")
#: What objects of libraries train with.
_FITS = ("train", "fit", "learn")
#: What a call runs that the program shows.
_SHOWN = (Function, Method, Class)
#: Names of those that only look at it.
_LOOKS = re.compile(
    r"(?i)eval|test|valid|predict|infer|sav|export|print|plot|report|log|summar|count|convert|generat|score"
)


def is_trained(run: History, what: Call | Event) -> bool:
    """Whether a backward pass follows ``what`` before another iteration of a loop begins that is not around it."""
    return any(it.order > what.order and _belongs_to(it.place, what.place) for it in run.of(Backward))


def _belongs_to(backward: Place, computed: Place) -> bool:
    if backward.walk != computed.walk or backward.excludes(computed):
        return False
    return backward.stack != computed.stack or set(backward.loops) <= set(computed.loops)


@lru_cache(maxsize=1)
def _trained_elsewhere(run: History) -> Mapping[int, int]:
    """By walk, the last call of what the program does not show and what trains by its name: `trainer.fit(net)`."""
    last: dict[int, int] = {}
    for call in run.program.calls:
        named = not isinstance(call.func, Function | Method | Class) and _TRAINS.search(call.called.lower())
        if (named or _is_handed_a_module(call)) and not (
            call.called == "train" and equals(call.argument(0, "mode"), False)
        ):
            last[call.place.walk] = call.order
    return MappingProxyType(last)


def _is_handed_a_module(call: Call) -> bool:
    """Whether a function of a package that is not shown gets a module, and does not only look at it by its name."""
    name = call.name.partition(".")[0]
    if isinstance(call.func, Function | Method | Class | Instance) or name in LIBRARIES or _LOOKS.search(call.called):
        return False
    given = (option for value in (*call.args, *call.kwargs.values()) for option in options(value))
    return any(isinstance(option, Instance) for option in given)


def follows_training(run: History, call: Call) -> bool:
    """Whether ``call`` comes behind the last backward pass of the program, and no loop brings another one."""
    trained, function_of = list(run.of(Backward)), run.program.functions
    if _trained_elsewhere(run).get(call.place.walk, 0) > call.order:
        return False
    if not trained or any(it.place.walk != call.place.walk or it.order > call.order for it in trained):
        return False
    around = _loops_around(run, call)
    if around is None or any(around.intersection(_loops_around(run, it.call) or around) for it in trained):
        return False
    training = {node for it in trained for node in it.place.callees if node in function_of}
    return not any(other.order > call.order for node in training for other in run.calls_of(function_of[node]))


def training_is_over(run: History, event: Event) -> bool:
    """Whether all that trains in the run of ``event`` comes before it, and no loop brings it again."""
    trained = [it.call for it in run.of(Backward)]
    trained += [call for call in run.program.calls if call.called in _FITS and not isinstance(call.func, _SHOWN)]
    here = [call for call in trained if call.place.walk == event.place.walk]
    callers = run.callers_of(event.place)
    if not here or callers is None or any(call.order > event.order for call in here):
        return False
    around = frozenset(loop for place in (*(call.place for call in callers), event.place) for loop in place.loops)
    trained_in = [_loops_around(run, call) for call in here]
    return all(loops is not None and around.isdisjoint(loops) for loops in trained_in)


def _loops_around(run: History, call: Call) -> frozenset[Loop] | None:
    """The loops around ``call`` and around the calls that led to it; None where one of them is not known."""
    path = run.path_to(call)
    return frozenset(loop for step in path for loop in step.place.loops) if path else None
