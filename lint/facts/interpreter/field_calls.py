"""Functions for classes of fields, of `dataclasses` and attrs: `field(default=1)`, `asdict(config)`, `replace(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.classes import is_dataclass
from ..objects.dataclass_fields import as_dict
from ..values import Absent, Call, Class, Dict, Function, Instance, Ref, Result, Seq, Unknown, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..walk import Walk


def _replace(walk: Walk, call: Call) -> Value | None:
    """``dataclasses.replace(obj, **changes)``: a new object that keeps what is not changed."""
    match call.args:
        case [Instance(_, Call() as made)] | [Result(call=Call() as made)] if _makes_object(made):
            call.args, call.open_args = made.args, made.open_args
            call.kwargs = {**made.kwargs, **call.kwargs}
            call.open_kwargs |= made.open_kwargs
            call.func = made.func
            original = call.func
            return Instance(original, call) if isinstance(original, Class) else Result(call)
    return None


def _makes_object(made: Call) -> bool:
    """Whether what is called is a class, by its name where it is imported: a function may give anything."""
    return isinstance(made.func, Class) or made.called[:1].isupper()


def _as_dict(walk: Walk, call: Call) -> Value | None:
    """``dataclasses.asdict(config)``."""
    match call.args:
        case [Instance() as held] if not call.kwargs:
            return as_dict(held, call.node, walk.place)
    return None


def _field(walk: Walk, call: Call) -> Value | None:
    """``field(default=...)`` in a class body stands for what the field holds when it is not given."""
    factory = call.keyword("default_factory" if "default_factory" in call.kwargs else "factory")
    match factory:
        case Function():
            made = Call(call.node, factory, walk.place, walk.program.next_order())
            return walk.follow(factory, made, None)
        case Class() if is_dataclass(factory):
            return Instance(factory, Call(call.node, factory, walk.place, walk.program.next_order()))
        case Ref("builtins.dict"):
            return Dict({}, False, call.node, walk.place)
        case Ref("builtins.list"):
            return Seq("list", [], False, call.node, walk.place)
    default = call.argument(0, "default")
    return Unknown(call.node) if isinstance(default, Absent) else default


OF_FIELDS: dict[str, Callable[[Walk, Call], Value | None]] = {
    **dict.fromkeys(("dataclasses.replace", "copy.replace", "attr.evolve", "attrs.evolve"), _replace),
    **dict.fromkeys(("dataclasses.asdict", "attr.asdict", "attrs.asdict"), _as_dict),
    **dict.fromkeys(("dataclasses.field", "attr.ib", "attr.attrib", "attr.field", "attrs.field"), _field),
}
