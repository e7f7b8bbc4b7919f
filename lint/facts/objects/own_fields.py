"""What one object holds, where its class builds different ones: `Net(Block)` and `Net(Checkpointed)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import Function, join
from .classes import ancestors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..values import Call, FunctionNode, Instance, Place, Value


def fields_of(instance: Instance) -> Iterator[Value]:
    """What ``instance`` may hold: what objects of its class do, without what the constructor stored in other ones."""
    classes = (instance.cls, *ancestors(instance.cls))
    constructors = [found.node for cls in classes if isinstance(found := cls.body.get("__init__"), Function)]
    for owner in classes:
        writes: dict[str, list[tuple[Value, Place]]] = {name: [] for name in owner.fields}
        for name, value, place in owner.stored:
            writes[name].append((value, place))
        for name, held in owner.fields.items():
            yield _own(instance.call, writes[name], constructors) or held


def _own(call: Call | None, writes: list[tuple[Value, Place]], constructors: list[FunctionNode]) -> Value | None:
    """What ``writes`` store in the object that ``call`` makes; None where its constructor is not seen to store it."""
    if call is None or not any(_is_made_by(call, place) for _, place in writes):
        return None
    return join(*(value for value, place in writes if _is_made_by(call, place) or not _is_within(constructors, place)))


def _is_made_by(call: Call, place: Place) -> bool:
    """Whether ``place`` is in what ``call`` runs."""
    stack = (*call.place.stack, call.node)
    return place.walk == call.place.walk and _same_calls(place.stack[: len(stack)], stack)


def _same_calls(found: tuple[object, ...], wanted: tuple[object, ...]) -> bool:
    return len(found) == len(wanted) and all(left is right for left, right in zip(found, wanted, strict=True))


def _is_within(constructors: list[FunctionNode], place: Place) -> bool:
    """Whether a call ran one of ``constructors`` around ``place``."""
    return any(node is constructor for node in place.callees for constructor in constructors)
