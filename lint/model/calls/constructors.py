"""What objects are built with: a parameter of a constructor stands for what its calls give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import method_of
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
    given = (call.argument(place, value.name) for call in constructions(run, value.function))
    return [option for argument in given for option in options(argument)] or [value]


def constructions(run: History, constructor: Function) -> Iterator[Call]:
    """The calls of classes whose objects ``constructor`` builds, their own or an inherited one."""
    calls = (call for call in run.program.calls if isinstance(call.func, Class))
    return (call for call in calls if isinstance(call.func, Class) and method_of(call.func, "__init__") is constructor)
