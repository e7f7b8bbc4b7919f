"""What a function that only passes on comes to: `def custom_forward(*inputs): return module(*inputs)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import names_in
from ...facts.values import UNKNOWN, Const, Function, Param
from .arguments import Argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call, FunctionNode, Value


class Passed(NamedTuple):
    """What is called in the end, and with what, in terms of the code around the first call."""

    block: Value
    arguments: list[Argument]


def passed_on(function: Value, given: list[Argument], calls: Iterable[Call]) -> Passed | None:
    """What a call of ``function`` comes to, when its body is one call of something else.

    Args:
        function: What is called.
        given: What it is called with.
        calls: The calls in its body.

    Returns:
        None when it does more than that, or what it passes on is not known.
    """
    node = _only_call(function.node) if isinstance(function, Function) else None
    inner = next((call for call in calls if call.node is node), None) if node is not None else None
    if inner is None or not isinstance(function, Function):
        return None
    slots = _filled(function.node, given)
    found = None if slots is None else _arguments(inner, slots, _hidden(function))
    return None if slots is None or found is None else Passed(_held(inner.func, slots), found)


def _held(called: Value, slots: _Slots) -> Value:
    """What a parameter that is called holds: `lambda x, block=block: block(x)`."""
    if not isinstance(called, Param) or called.name not in slots.named:
        return called
    given = slots.named[called.name]
    return given.value if given.position is not None or called.default is None else called.default


class _Slots(NamedTuple):
    """What the parameters of a function hold in one call."""

    named: dict[str, Argument]
    #: What goes to `*args` and to `**kwargs`, and their names.
    rest: list[Argument]
    extra: list[Argument]
    star: str | None
    stars: str | None


def _only_call(node: FunctionNode) -> ast.Call | None:
    if isinstance(node, ast.Lambda):
        return node.body if isinstance(node.body, ast.Call) else None
    match [statement for statement in node.body if not _is_docstring(statement)]:
        case [ast.Return(value=ast.Call() as call)]:
            return call
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _filled(node: FunctionNode, given: list[Argument]) -> _Slots | None:
    """Where the arguments go; None when the call does not fit the function."""
    parameters = [part.arg for part in (*node.args.posonlyargs, *node.args.args)]
    positional = [argument for argument in given if argument.position is not None]
    named = dict(zip(parameters, positional, strict=False))
    extra = []
    for argument in given:
        if argument.name is not None and argument.name in parameters:
            named[argument.name] = argument
        elif argument.name is not None:
            extra.append(argument)
    named = dict(_defaults(node)) | named
    star, stars = (part.arg if part is not None else None for part in (node.args.vararg, node.args.kwarg))
    rest = positional[len(parameters) :]
    fits = not node.args.kwonlyargs and named.keys() >= set(parameters)
    return _Slots(named, rest, extra, star, stars) if fits and (star or not rest) and (stars or not extra) else None


def _defaults(node: FunctionNode) -> Iterator[tuple[str, Argument]]:
    parameters = [*node.args.posonlyargs, *node.args.args]
    for parameter, default in zip(reversed(parameters), reversed(node.args.defaults), strict=False):
        yield parameter.arg, Argument(default, _constant(default), None, parameter.arg)


def _constant(node: ast.expr) -> Value:
    return Const(node.value, node) if isinstance(node, ast.Constant) else UNKNOWN


def _hidden(function: Function) -> set[str]:
    """The names of ``function``, and of one that makes it, which mean something else around the first call."""
    maker = function.place.function if function.place.stack else None
    nodes = [function.node, *([maker.node] if maker is not None else [])]
    return {part.arg for node in nodes for part in ast.walk(node.args) if isinstance(part, ast.arg)}


def _arguments(inner: Call, slots: _Slots, hidden: set[str]) -> list[Argument] | None:
    """The arguments of ``inner``, those that are parameters of the function around it replaced by what they hold."""
    found: list[Argument] = []
    for index, part in enumerate(inner.node.args):
        parts = _replaced(part, slots, hidden, inner.args[index] if index < len(inner.args) else UNKNOWN)
        if parts is None:
            return None
        found += [part._replace(position=len(found) + at, name=None) for at, part in enumerate(parts)]
    for keyword in inner.node.keywords:
        if keyword.arg is None:
            if not isinstance(keyword.value, ast.Name) or keyword.value.id != slots.stars:
                return None
            found += slots.extra
            continue
        parts = _replaced(keyword.value, slots, hidden, inner.kwargs.get(keyword.arg, UNKNOWN))
        if parts is None:
            return None
        found += [part._replace(position=None, name=keyword.arg) for part in parts]
    return found


def _replaced(node: ast.expr, slots: _Slots, hidden: set[str], value: Value) -> list[Argument] | None:
    match node:
        case ast.Starred(value=ast.Name(id=name)) if name == slots.star:
            return slots.rest
        case ast.Starred():
            return None
        case ast.Name(id=name) if name in slots.named:
            return [slots.named[name]]
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(at))) if name == slots.star:
            return [slots.rest[at]] if 0 <= at < len(slots.rest) else None
    return None if names_in(node) & hidden else [Argument(node, value, None, None)]
