"""Exception handlers: what they catch, and what they make of it."""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.objects.classes import decorator_names
from ...facts.parameters import parameter_names
from ...facts.scopes import bound_names
from ...facts.straight import only_value, straight
from ...facts.values import Ref, Seq
from ..wrapping.meanings import meaning
from .exits import EVERYTHING, left_by, raises_another
from .swallowed import swallowing_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from ...facts.values import Function, Place, Value

    _Called: TypeAlias = Callable[[ast.Call], Function | None]

#: Operators whose backward pass needs what they got, so that they save tensors.
_SAVING = (ast.Mult, ast.Div, ast.MatMult, ast.Pow)
_SUMS = ("add", "sub")
#: Methods of tensors, and functions of torch, whose backward pass needs no tensor: torch saves none for them.
_SAVING_NOTHING = frozenset(
    (
        *("add", "add_", "sub", "sub_", "neg", "view", "reshape", "flatten", "unflatten", "permute", "transpose"),
        *("squeeze", "unsqueeze", "contiguous", "to", "type_as", "float", "half", "bfloat16", "movedim", "chunk"),
        *("view_as", "reshape_as", "expand", "split", "unbind", "clone"),
    )
)


def catches(handler: ast.ExceptHandler, *names: str) -> bool:
    """Whether ``handler`` catches exceptions of one of these names, or all: `except:`."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in names) for kind in kinds)


def catches_there(handler: ast.ExceptHandler, place: Place, *names: str) -> bool:
    """The same for a handler around ``place``, which may name a tuple that the program makes: `except ERRORS:`."""
    return catches(handler, *names) or any(
        isinstance(kind, Ref) and kind.name.removeprefix("builtins.") in names for kind in _kinds_named(handler, place)
    )


def _kinds_named(handler: ast.ExceptHandler, place: Place) -> Iterator[Value]:
    if place.function is None or not isinstance(handler.type, ast.Name | ast.Tuple):
        return
    own = {*parameter_names(place.function.node), *bound_names(place.function.node)}
    if any(isinstance(part, ast.Name) and part.id in own for part in all_nodes(handler.type)):
        return  # What the function binds itself is not looked up around it.
    named = meaning(handler.type, place.function)
    for held in named.items if isinstance(named, Seq) else (named,):
        yield from held.items if isinstance(held, Seq) else (held,)


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
    if value is not None or not isinstance(function.node.body, list):
        return None if value is None else _last_in(value)
    ends = [it for it in straight(function.node.body, ast.With) if not isinstance(it, ast.Return) or it.value]
    while ends and isinstance(ends[-1], ast.Return | ast.Assign | ast.AnnAssign) and not _computes(ends[-1]):
        ends.pop()
    match ends[-1] if ends else None:
        case ast.Return(value=ast.expr() as value) | ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _last_in(value)
        case ast.AugAssign(op=op, value=value) if not isinstance(op, _SAVING):
            return _last_in(value)
    return None


def _last_in(value: ast.expr) -> ast.Call | None:
    """The last call in an expression that may save tensors, where nothing behind it does."""
    while True:
        match value:
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, _SAVING):
                value = right if _computes(right) else left
            case ast.Subscript(value=inner, slice=part) if not _is_indexed(part):
                value = inner
            case ast.UnaryOp(operand=inner) | ast.Starred(value=inner):
                value = inner
            case ast.Tuple(elts=[*_, _] as parts) | ast.List(elts=[*_, _] as parts):
                value = next(filter(_computes, reversed(parts)), parts[-1])
            case ast.Call(func=ast.Attribute(value=base, attr=name), args=args) if _saves_nothing(value):
                terms = args if name.startswith(_SUMS) or not _computes(base) else []
                value = next(filter(_computes, reversed(terms)), base)
            case _:
                return value if isinstance(value, ast.Call) else None


def _is_indexed(part: ast.expr) -> bool:
    """Whether what stands in `x[...]` may be a tensor, which is saved."""
    return any(isinstance(node, ast.Name | ast.Attribute | ast.Call) for node in all_nodes(part))


def _saves_nothing(node: ast.Call) -> bool:
    """Whether it is a method of a tensor, or a function of torch, that saves none: no module of the object's own."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _SAVING_NOTHING:
        return False
    base: ast.expr = node.func.value
    while isinstance(base, ast.Attribute):
        base = base.value
    return not (isinstance(base, ast.Name) and base.id in ("self", "cls"))


def _handler_of_end(function: Function) -> ast.ExceptHandler | None:
    """The same within the statements of ``function``."""
    body = function.node.body
    if not isinstance(body, list):
        return None
    for statement in reversed([*straight(body, ast.With)]):
        if isinstance(statement, ast.Try):
            caught = next((handler for handler in statement.handlers if catches(handler, *EVERYTHING)), None)
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
                if any(isinstance(kind, ast.Name) and kind.id in EVERYTHING for kind in kinds):
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
            caught = next((it for it in statement.handlers if catches(it, *EVERYTHING)), None)
            return caught if caught is not None and _raises_another(caught) else None
    return None


def _inside(body: list[ast.stmt]) -> Iterator[ast.AST]:
    return (node for statement in body for node in all_nodes(statement))


def _computes(statement: ast.AST) -> bool:
    """Whether running it may save tensors."""
    return any(
        (isinstance(node, ast.Call) and not _saves_nothing(node))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, _SAVING))
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
