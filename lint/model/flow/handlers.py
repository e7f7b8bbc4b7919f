"""Exception handlers: what they catch, and what they make of it."""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.objects.classes import decorator_names
from ...facts.straight import only_value, straight
from .exits import left_by, raises_another
from .swallowed import swallowing_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from ...facts.values import Function

    _Called: TypeAlias = Callable[[ast.Call], Function | None]

_EVERYTHING = ("Exception", "BaseException")
#: Operators whose backward pass needs what they got, so that they save tensors.
_SAVING = (ast.Mult, ast.Div, ast.MatMult, ast.Pow)


def catches(handler: ast.ExceptHandler, *names: str) -> bool:
    """Whether ``handler`` catches exceptions of one of these names, or all: `except:`."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in names) for kind in kinds)


def handler_of_end(function: Function, called: _Called, exit_of: _Called) -> ast.AST | None:
    """What catches the end of the last computation of ``function`` and computes or raises something else.

    Args:
        function: Where the computation ends, or what it calls last.
        called: Gives the one function of the program that a call runs, None where there are more or none.
        exit_of: Gives the `__exit__` of a class of the program that a call makes an object of.
    """
    seen: list[ast.AST] = []
    inner: Function | None = function
    while inner is not None and inner.node not in seen:
        seen.append(inner.node)
        # What decorators put around it catches what it raises.
        handler = next(filter(None, map(_handler_of_end, (*inner.around, inner))), None)
        caught = handler or _handler_of_context(inner, called, exit_of)
        caught = caught or swallowing_block(inner, partial(_swallows, exit_of), _computes)
        if caught is not None:
            return caught
        last = _last_call(inner)
        inner = called(last) if last is not None else None
    return None


def _last_call(function: Function) -> ast.Call | None:
    """The call whose end is that of all that ``function`` computes: `return x + self.attention(x)`."""
    value = only_value(function.node)
    if value is None and isinstance(function.node.body, list):
        *_, last = straight(function.node.body, ast.With)
        value = last.value if isinstance(last, ast.Return) else None
    while isinstance(value, ast.BinOp) and not isinstance(value.op, _SAVING):
        value = value.right
    return value if isinstance(value, ast.Call) else None


def _handler_of_end(function: Function) -> ast.ExceptHandler | None:
    """The same within the statements of ``function``."""
    body = function.node.body
    if not isinstance(body, list):
        return None
    for statement in reversed([*straight(body, ast.With)]):
        if isinstance(statement, ast.Try):
            caught = next((handler for handler in statement.handlers if catches(handler, *_EVERYTHING)), None)
            after = [*statement.orelse, *statement.finalbody]
            inside = any(_computes(inner) for inner in statement.body)
            fails = caught is not None and (_raises_another(caught) or _falls_back(caught))
            return caught if inside and fails and not any(map(_computes, after)) else None
        if _computes(statement):
            return None
    return None


def _handler_of_context(function: Function, called: _Called, exit_of: _Called) -> ast.AST | None:
    """What a context manager of the program, `with named("attention"):`, around the last computation raises.

    The handler in a generator, or the `raise` in `__exit__`.
    """
    body = function.node.body if isinstance(function.node.body, list) else []
    while body:
        last = next((statement for statement in reversed(body) if _computes(statement)), None)
        if not isinstance(last, ast.With):
            return None
        entered = [item.context_expr for item in last.items if isinstance(item.context_expr, ast.Call)]
        makers = (maker for call in entered if (maker := called(call)) is not None)
        exits = (left_by(method) for call in entered if (method := exit_of(call)) is not None)
        found = (*map(_handler_around_yield, makers), *(left for left in exits if raises_another(left)))
        handler = next(filter(None, found), None)
        if handler is not None:
            return handler
        body = last.body
    return None


def _swallows(exit_of: _Called, block: ast.With) -> ast.AST | None:
    """What swallows any exception in ``block``: the `return True` of a class, or `suppress(Exception)`."""
    for item in block.items:
        match item.context_expr:
            case ast.Call(func=ast.Name("suppress") | ast.Attribute(attr="suppress"), args=kinds) as call:
                if any(isinstance(kind, ast.Name) and kind.id in _EVERYTHING for kind in kinds):
                    return call
            case ast.Call() as call if (method := exit_of(call)) is not None:
                left = left_by(method)
                if isinstance(left, ast.Return):
                    return left
    return None


def _handler_around_yield(maker: Function) -> ast.ExceptHandler | None:
    """The handler by which a generator that is a context manager turns any exception of its block into another."""
    if not any(name.endswith("contextmanager") for name in decorator_names(maker)):
        return None
    for statement in straight(maker.node.body if isinstance(maker.node.body, list) else [], ast.With):
        if isinstance(statement, ast.Try) and any(isinstance(it, ast.Yield) for it in _inside(statement.body)):
            caught = next((it for it in statement.handlers if catches(it, *_EVERYTHING)), None)
            return caught if caught is not None and _raises_another(caught) else None
    return None


def _inside(body: list[ast.stmt]) -> Iterator[ast.AST]:
    return (node for statement in body for node in all_nodes(statement))


def _computes(statement: ast.AST) -> bool:
    """Whether running it may save tensors."""
    return any(
        isinstance(node, ast.Call) or (isinstance(node, ast.BinOp) and isinstance(node.op, _SAVING))
        for node in all_nodes(statement)
        if not isinstance(statement, ast.Raise)
    )


def _falls_back(handler: ast.ExceptHandler) -> bool:
    """Whether the handler computes a value of its own; a call that is only made, as of a logger, is none."""
    if any(isinstance(node, ast.Raise) for node in all_nodes(handler)):
        return False
    return any(_computes(node) for node in all_nodes(handler) if isinstance(node, ast.Return | ast.Assign))


def _raises_another(handler: ast.ExceptHandler) -> bool:
    raised = [node for node in all_nodes(handler) if isinstance(node, ast.Raise)]
    return any(isinstance(node.exc, ast.Call) for node in raised)
