"""What one object holds, where its class builds different ones: `Net(Block)` and `Net(Checkpointed)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import Function, Instance, Unknown, join, options, same
from .classes import ancestors, related

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..values import Call, Class, FunctionNode, Place, Value
    from ..walk import Write


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


def stored_together(owner: Class, first: Value, second: Value, writes: Sequence[Write]) -> list[tuple[Value, Value]]:
    """What each constructor call stores in the two attributes of ``owner`` that ``first`` and ``second`` come from.

    None of them where an attribute is set in another way, or the call stands under a condition.

    Args:
        owner: The class whose method reads them.
        first: What one of them may hold.
        second: What the other may hold.
        writes: Every write of the program.
    """
    names = [_attributes_read(owner, value) for value in (first, second)]
    if any(len(it) != 1 for it in names) or names[0] == names[1]:
        return []
    held, others = (_stored(owner, name, writes) for read in names for name in read)
    if len(held) != len(others):
        return []
    pairs = [
        (left, right)
        for (left, here), (right, there) in zip(held, others, strict=True)
        if _is_one_call(here, there) and not (here.guards or there.guards)
    ]
    calls = {tuple(map(id, place.stack)) for _, place in held}
    return pairs if len(pairs) == len(held) == len(calls) else []


def _stored(owner: Class, name: str, writes: Sequence[Write]) -> list[tuple[Value, Place]]:
    """What methods of ``owner`` store in an attribute; nothing where something else may store there too."""
    classes = (owner, *ancestors(owner))
    found = [(value, place) for cls in classes for field, value, place in cls.stored if field == name]
    written = sum(write.field == name and not _is_of_other_class(write.obj, owner) for write in writes)
    return found if len(found) == written else []


def _is_of_other_class(value: Value, owner: Class) -> bool:
    return isinstance(value, Instance) and not related(value.cls, owner)


def _is_one_call(here: Place, there: Place) -> bool:
    return bool(here.stack) and here.walk == there.walk and _same_calls(here.stack, there.stack)


def _attributes_read(owner: Class, read: Value) -> set[str]:
    """The attributes of ``owner`` whose value ``read`` is."""
    found = [option for option in options(read) if not isinstance(option, Unknown)]
    return {name for name, value, _ in owner.stored if any(same(value, option) for option in found)}


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
