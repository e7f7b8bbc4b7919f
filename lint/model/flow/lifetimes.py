"""What was done to the parts of an object before one of its methods runs: what its constructor did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.values import Class
from .ordering import surely_before

if TYPE_CHECKING:
    from ...facts.values import Call, Function
    from ..history import History


def surely_done(run: History, first: Call, second: Call) -> bool:
    """Whether ``first`` ran whenever ``second`` runs: before it, or in the constructor of the object it is in."""
    if surely_before(first, second):
        return True
    return is_built_before(run, first, second) and all(guard.asserted for guard in first.place.guards)


def is_built_before(run: History, first: Call, second: Call) -> bool:
    """Whether the constructor of the object whose method comes to ``second`` comes to ``first``, if only at times."""
    used = outermost(run, second)
    if used is None or used.owner is None:
        return False
    line: list[Class] = [used.owner, *ancestors(used.owner)]
    ways = [step.place.function for step in run.path_to(first)]
    makers = [way is not None and way is not used and way.name == "__init__" and way.owner in line for way in ways]
    # What else builds such an object may give its constructor something else.
    return any(makers) and (makers[0] or _is_built_once(run, used.owner))


def _is_built_once(run: History, owner: Class) -> bool:
    made = (call.func for call in run.program.calls if isinstance(call.func, Class))
    return sum(owner in (cls, *ancestors(cls)) for cls in made) == 1


def outermost(run: History, call: Call) -> Function | None:
    """The function that nothing in the program calls, and that leads to ``call``."""
    return next((first.place.function for first in run.path_to(call)), None)
