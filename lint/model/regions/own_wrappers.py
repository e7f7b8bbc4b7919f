"""Modules of the program that make a checkpoint around another module: `Recomputed(Block())`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.identifiers import is_own_attribute
from ..calls.handed_on import handed_on

if TYPE_CHECKING:
    from ...facts.values import Place, Value
    from ..events import FunctionCheckpoint
    from ..history import History


def is_around_each_block(run: History, checkpoint: FunctionCheckpoint) -> bool:
    """Whether a method checkpoints what its object holds, and constructors make such objects in loops, one a block."""
    function, given = checkpoint.place.function, checkpoint.node.args[:1]
    if function is None or function.owner is None or not any(map(is_own_attribute, given)):
        return False
    made = [call for call in run.program.calls if call.func is function.owner]
    return bool(made) and all(call.place.loops and _is_in_constructor(call.place) for call in made)


def _is_in_constructor(place: Place) -> bool:
    entered = () if place.function is None else (place.function.node,)
    return any(getattr(function, "name", "") == "__init__" for function in (*place.callees, *entered))


def inputs_of(run: History, checkpoint: FunctionCheckpoint) -> list[Value]:
    """The positional inputs of a checkpoint; where its module hands its `*args` on, what one of its callers gives.

    Nothing where the callers give different numbers of them.
    """
    handed = handed_on(run.forwards, checkpoint.call) if checkpoint.call.open_args and not checkpoint.inputs else None
    if not handed:
        return checkpoint.inputs
    by_call = {id(call): [value for other, value in handed if other is call] for call, _ in handed}
    first, *others = by_call.values()
    return first if all(len(other) == len(first) for other in others) else []
