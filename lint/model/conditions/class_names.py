"""Conditions that ask for a class by its name: `type(module).__name__ == "LlamaDecoderLayer"`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.values import Attr, Const, Seq, Test, Value, same
from ..types import object_of_class

if TYPE_CHECKING:
    from ...facts.values import Guard


def class_names_asked(guard: Guard, module: Value) -> tuple[str, ...]:
    """The names of which the class of ``module`` has one where ``guard`` holds; none for another condition."""
    sides: tuple[tuple[Value, Value], ...] = ()
    match guard.test, guard.value:
        case ast.Compare(ops=[ast.Eq()]), Test(operands=(left, right)):
            sides = ((left, right), (right, left))
        case ast.Compare(ops=[ast.In()]), Test(operands=(left, right)):
            sides = ((left, right),)
    asked = next((names for named, names in sides if _names_class_of(named, module)), None)
    return _texts(asked) if guard.taken and asked is not None else ()


def _names_class_of(value: Value, module: Value) -> bool:
    """Whether ``value`` is `type(module).__name__` or `module.__class__.__name__`."""
    match value:
        case Attr(base=cls, name="__name__" | "__qualname__"):
            held = object_of_class(cls)
            return held is not None and same(held, module)
    return False


def _texts(value: Value) -> tuple[str, ...]:
    """The texts that ``value`` is or holds; none where something else is in it."""
    items = value.items if isinstance(value, Seq) and not value.open else [value]
    texts = tuple(item.value for item in items if isinstance(item, Const) and isinstance(item.value, str))
    return texts if len(texts) == len(items) else ()
