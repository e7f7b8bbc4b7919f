"""What was done to the parts of an object before one of its methods runs: what its constructor did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from .ordering import surely_before

if TYPE_CHECKING:
    from ...facts.values import Call, Class, Function
    from ..history import History


def surely_done(run: History, first: Call, second: Call) -> bool:
    """Whether ``first`` ran whenever ``second`` runs: before it, or in the constructor of the object it is in."""
    if surely_before(first, second):
        return True
    return is_built_before(run, first, second) and all(guard.asserted for guard in first.place.guards)


def is_built_before(run: History, first: Call, second: Call) -> bool:
    """Whether the constructor of the object whose method comes to ``second`` comes to ``first``, if only at times."""
    built, used = outermost(run, first), outermost(run, second)
    if built is None or used is None or built.owner is None or used.owner is None:
        return False
    line: list[Class] = [used.owner, *ancestors(used.owner)]
    return built.name == "__init__" and built.owner in line and used is not built


def outermost(run: History, call: Call) -> Function | None:
    """The function that nothing in the program calls, and that leads to ``call``."""
    return next((first.place.function for first in run.path_to(call)), None)
