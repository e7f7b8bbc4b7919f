"""Check functions of `apply_activation_checkpointing`: what they ask of each module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Const, Function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value


class ComparedWith(NamedTuple):
    """A check that compares the module itself: `module is Block`."""

    name: str
    value: Value
    node: ast.expr


class NamesAsked(NamedTuple):
    """A check that asks for the name of the class: `type(module).__name__ in ("Block", "Layer")`."""

    names: frozenset[str]
    node: ast.expr


def compared_with(check: Value) -> ComparedWith | None:
    """What ``check`` compares the module itself with; None when it asks something else."""
    match _test(check), check:
        case (
            ast.Compare(left=ast.Name(left), ops=[ast.Is() | ast.Eq()], comparators=[ast.Name(right)]) as test,
            Function() as function,
        ) if left in _parameters(function):
            return ComparedWith(right, function.scope.look_up(right), test)
        case ast.Compare(left=asked, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(str(text))]) as test, _ if (
            _is_class(asked)
        ):
            return ComparedWith(repr(text), Const(text, test), test)
    return None


def names_asked(check: Value) -> NamesAsked | None:
    """The names of classes that ``check`` accepts; None when it asks something else."""
    match _test(check):
        case ast.Compare(left=asked, ops=[ast.Eq() | ast.In()], comparators=[texts]) as test if _is_class_name(asked):
            names = frozenset(_strings(texts))
            return NamesAsked(names, test) if names else None
    return None


def asks_by_isinstance(check: Value) -> ast.expr | None:
    """The one `isinstance(module, ...)` that ``check`` consists of; None when it is something else."""
    match _test(check):
        case ast.Call(func=ast.Name("isinstance")) as test:
            return test
    return None


def _test(check: Value) -> ast.expr | None:
    """The expression that a check function consists of."""
    match check:
        case Function(node=ast.Lambda(body=test)):
            return test
        case Function(node=ast.FunctionDef(body=[ast.Return(value=test)])):
            return test
    return None


def _parameters(function: Function) -> list[str]:
    return [argument.arg for argument in function.node.args.args]


def _is_class_name(node: ast.expr) -> bool:
    """`type(module).__name__` or `module.__class__.__name__`."""
    return isinstance(node, ast.Attribute) and node.attr == "__name__" and _is_class(node.value)


def _is_class(node: ast.expr) -> bool:
    """`type(module)` or `module.__class__`."""
    match node:
        case ast.Call(func=ast.Name("type")) | ast.Attribute(attr="__class__"):
            return True
    return False


def _strings(node: ast.expr) -> Iterator[str]:
    """The texts of a display or of one constant; none when something else is among them."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    yield from texts if len(texts) == len(parts) else ()
