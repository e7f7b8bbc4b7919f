"""The loops around a call, through the calls that led to it, and what one iteration of each is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call, Loop
    from ..history import History


class Iteration(NamedTuple):
    """One iteration of a loop, in program order."""

    loop: Loop
    first: int
    last: int


def iterations_around(run: History, call: Call) -> Iterator[Iteration]:
    """An iteration of each loop around ``call``, and around the calls that led to it."""
    calls = [other for other in run.program.calls if other.place.walk == call.place.walk]
    at: Call | None = call
    while at is not None:
        stack = at.place.stack
        for loop in at.place.loops:
            direct = {other.node for other in calls if other.place.stack == stack and loop in other.place.loops}
            orders = [other.order for other in calls if _is_made_by(other, stack, direct)]
            yield Iteration(loop, min(orders), max(orders))
        at = next((other for other in calls if (*other.place.stack, other.node) == stack), None)


def _is_made_by(call: Call, stack: tuple[ast.Call, ...], direct: AbstractSet[ast.Call]) -> bool:
    """Whether ``call`` is one of ``direct``, made in the frame that ``stack`` led to, or comes of one."""
    path = (*call.place.stack, call.node)
    return len(path) > len(stack) and path[: len(stack)] == stack and path[len(stack)] in direct
