"""Loops that do nothing but switch something of what they go through: `for part in parts: freeze(part)`."""

from __future__ import annotations

import ast

#: What such a loop asks an element for: its parameters, or modules in it.
_PARTS = frozenset(("parameters", "named_parameters", "modules", "named_modules", "children"))


def switches_only(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether the body makes nothing that outlives an iteration: it calls methods of the element, and sets flags."""
    return isinstance(loop.target, ast.Name) and _is_switching(loop.body, frozenset((loop.target.id,)))


def _is_switching(body: list[ast.stmt], names: frozenset[str]) -> bool:
    return all(_switches(statement, names) for statement in body)


def _switches(statement: ast.stmt, names: frozenset[str]) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in names  # `part.eval()`
        case ast.Expr(value=ast.Call(func=ast.Name(), args=[ast.Name(id=name), *rest])):
            return name in names and all(isinstance(given, ast.Constant) for given in rest)  # `freeze(part)`
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name))], value=ast.Constant()):
            return name in names  # `parameter.requires_grad = False`
        case ast.For(target=target, iter=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)), body=body):
            return name in names and method in _PARTS and _is_switching(body, names | _names(target))
    return False


def _names(target: ast.expr) -> frozenset[str]:
    """The names that a loop binds."""
    return frozenset(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
