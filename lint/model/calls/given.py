"""What an object was given when it was built, where its class alone does not tell: `Residual(block)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.exclusion import parts_that_hold
from ...facts.identifiers import is_own_attribute
from ...facts.objects.containers import container_kind, length_of
from ...facts.values import (
    UNKNOWN,
    Attr,
    Choice,
    Instance,
    Method,
    Result,
    Value,
    equals,
    may_be_none,
    options,
    truth,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from ...facts.values import Call, Guard


def asked_of_self(call: Call) -> str | None:
    """The attribute of its own object that a method calls: `fn` in `self.fn(x)`; None for other calls."""
    function = call.place.function
    arguments = function.node.args.args if function is not None and function.owner is not None else []
    match call.node.func:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if arguments and arguments[0].arg == name:
            return attribute
    return None


def of_object(call: Call, instance: Instance | None) -> Value:
    """What ``call``, in a method of ``instance``, calls: what that object holds rather than any of its class."""
    name = asked_of_self(call) if instance is not None and instance.call is not None else None
    if name is None or instance is None:
        return call.func
    if isinstance(call.func, Method):
        return Method(instance, call.func.function, call.func.node)
    own = (instance.attributes or {}).get(name)
    if own is not None:
        return own
    held = instance.cls.fields.get(name)
    # Its constructor was not followed: which of them it holds is not known.
    return UNKNOWN if isinstance(held, Choice) else call.func


def holds_for(instance: Instance | None, guard: Guard, changed: Container[str]) -> bool | None:
    """Whether a condition of a method comes out as said for this very object; None where that is open.

    Args:
        instance: The object whose method it is.
        guard: The condition: `self.downsample is not None`.
        changed: The attributes that something else than a constructor sets.
    """
    if instance is None or instance.call is None:
        return None
    answers = [
        None if (answer := _answer(part, instance, changed)) is None else answer is holds
        for part, holds in parts_that_hold(guard.test, guard.taken)
    ]
    if False in answers:
        return False
    return None if None in answers else True


def _answer(test: ast.AST, instance: Instance, changed: Container[str]) -> bool | None:
    match test:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]):
            held = _held(left, instance, changed)
            answer = None if held is None else may_be_none(held)
            return None if answer is None else answer is isinstance(op, ast.Is)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Constant(value=constant)]):
            held = _held(left, instance, changed)
            answer = None if held is None else equals(held, constant)
            return None if answer is None else answer is isinstance(op, ast.Eq)
        case ast.Attribute():
            held = _held(test, instance, changed)
            return None if held is None else _is_true(held)
    return None


def _held(node: ast.AST, instance: Instance, changed: Container[str]) -> Value | None:
    """What the object holds under the attribute ``node`` of `self`, as its constructor set it for good."""
    if not is_own_attribute(node) or node.attr in changed:
        return None
    held = (instance.attributes or {}).get(node.attr)
    return None if held is None or any(isinstance(option, Attr) for option in options(held)) else held


def _is_true(value: Value) -> bool | None:
    if isinstance(value, Result | Instance) and may_be_none(value) is False:
        # A container is as true as it is long.
        length = length_of(value) if container_kind(value) else 1
        return None if length is None else length > 0
    return truth(value)
