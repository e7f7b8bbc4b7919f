"""What objects are built with: a parameter of a constructor stands for what its calls give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.parameters import positional_names
from ...facts.values import Class, Param, options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function, Value
    from ..history import History


def given_to_constructors(run: History, value: Value) -> list[Value]:
    """What ``value`` stands for: itself, or for a parameter of a constructor what each call of the class gives."""
    if not isinstance(value, Param) or value.function.name != "__init__":
        return [value]
    positional = positional_names(value.function.node)
    place = positional.index(value.name) - 1 if value.name in positional else None
    given = (call.argument(place, value.name) for call in _constructions(run, value.function))
    return [option for argument in given for option in options(argument)] or [value]


def _constructions(run: History, constructor: Function) -> Iterator[Call]:
    calls = (call for call in run.program.calls if isinstance(call.func, Class))
    return (call for call in calls if _constructor_of(call.func) is constructor)


def _constructor_of(cls: Value) -> Value | None:
    """The constructor that objects of ``cls`` are built by, its own or an inherited one."""
    if not isinstance(cls, Class):
        return None
    owners = (cls, *ancestors(cls))
    return next((owner.body["__init__"] for owner in owners if "__init__" in owner.body), None)
