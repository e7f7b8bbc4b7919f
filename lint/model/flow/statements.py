"""What the statement around a call does with what the call gives."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, is_behind, source_text
from ...facts.surroundings import parents_in

if TYPE_CHECKING:
    from collections.abc import Container

    from ...facts.values import Call, Function
    from ..history import History


def body_around(run: History, call: Call) -> ast.AST:
    """The function that makes ``call``, or the module."""
    function = call.place.function
    return run.program.tree if function is None else function.node


def holder_of(run: History, call: Call) -> ast.AST | None:
    """The node right above ``call``; None when it stands in a module that is imported."""
    return parents_in(body_around(run, call)).get(call.node)


def is_stored_as_item(run: History, call: Call) -> bool:
    """Whether a statement puts what ``call`` gives into a list or a dict: `model.blocks[i] = call(...)`."""
    holder = holder_of(run, call)
    return isinstance(holder, ast.Assign) and all(isinstance(target, ast.Subscript) for target in holder.targets)


def own_statement(run: History, call: Call) -> ast.Expr | None:
    """The statement that is ``call`` and nothing else."""
    holder = holder_of(run, call)
    return holder if isinstance(holder, ast.Expr) else None


def stored_under(run: History, call: Call) -> frozenset[str]:
    """The variables that hold what ``call`` gives, itself or as an element: `x` for `x = f()` and `x[0] = f()`."""
    match holder_of(run, call):
        case ast.Assign(targets=targets, value=value) if value is call.node:
            return frozenset(map(base_name, targets)) - {""}
    return frozenset()


def return_behind(function: Function, node: ast.AST, names: Container[str]) -> ast.Return | None:
    """The statement of ``function`` behind ``node`` that returns something with one of the variables ``names``."""
    for part in all_nodes(function.node):
        match part:
            case ast.Return(value=ast.expr() as value) if is_behind(part, node):
                if any(name in names for name in names_in(value)):
                    return part
    return None


def appended_to(run: History, call: Call) -> str:
    """The list, as it is written, that gets what ``call`` gives as its last element; empty where there is none."""
    match holder_of(run, call):
        case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as held, attr="append")):
            return source_text(held)
    return ""


def list_ending_in(expression: ast.expr) -> str:
    """The list whose last element ``expression`` is: `x` for `x[-1]` and `x.pop()`; empty for anything else."""
    match expression:
        case ast.Subscript(value=held, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            pass
        case ast.Call(func=ast.Attribute(value=held, attr="pop"), args=[], keywords=[]):
            pass
        case _:
            return ""
    return source_text(held) if isinstance(held, ast.Name | ast.Attribute) else ""


def base_name(expression: ast.expr) -> str:
    """The variable that ``expression`` is, or is an element of: `x` for `x[0]`; empty for anything else."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def unscaled(written: ast.expr) -> list[ast.expr]:
    """The expressions of which ``written`` is a multiple: `loss` of `scaler.scale(loss / 4)`; itself for others."""
    match written:
        case ast.Call(func=ast.Attribute(attr="scale"), args=[inner]):
            return unscaled(inner)
        case ast.BinOp(left=left, op=ast.Div()):
            return unscaled(left)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return [*unscaled(left), *unscaled(right)]
    return [written]
