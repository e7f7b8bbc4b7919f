"""What a function that only passes on comes to: `def custom_forward(*inputs): return module(*inputs)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import names_in
from ...facts.parameters import defaults, parameter_names, positional_names
from ...facts.scopes import bound_names
from ...facts.straight import is_docstring, only_call, value_of
from ...facts.values import UNKNOWN, Const, Param
from .arguments import Argument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...facts.values import Call, Function, FunctionNode, Value


class Passed(NamedTuple):
    """What is called in the end, and with what, in terms of the code around the first call."""

    block: Value
    arguments: list[Argument]


def passed_on(
    function: Function,
    given: list[Argument],
    calls: Iterable[Call],
    caller: Function | None,
    receiver: Value | None = None,
) -> Passed | None:
    """What a call of ``function`` comes to, when its body is one call of something else.

    Args:
        function: What is called.
        given: What it is called with.
        calls: The calls in its body.
        caller: The function that calls it; None at module level.
        receiver: The object whose method it is, where that is the caller's `self`.

    Returns:
        None when it does more than that, or what it passes on is not known. Of calls under conditions of its own,
        those count that these values lead to.
    """
    given = given if receiver is None else _with_self(receiver, given)
    nodes, slots = _last_calls(function.node), _slots(function.node, given)
    made = [call for call in calls if call.node in nodes]
    if not made or slots is None or any(call.node is not made[0].node for call in made):
        return None
    inner = made[0]
    hidden = _hidden(function, caller) - (frozenset() if receiver is None else {"self"})
    arguments = _arguments(inner, slots, hidden)
    return None if arguments is None else Passed(_held(inner.func, slots), arguments)


class _Slots(NamedTuple):
    """What the parameters of a function hold in one call."""

    named: dict[str, Argument]
    #: What goes to `*args` and to `**kwargs`, and their names.
    rest: list[Argument]
    extra: list[Argument]
    star: str | None
    stars: str | None


def _with_self(receiver: Value, given: list[Argument]) -> list[Argument]:
    """``given`` behind `self`."""
    moved = [part if part.position is None else part._replace(position=part.position + 1) for part in given]
    return [Argument(ast.Name("self", ast.Load()), receiver, 0, None), *moved]


def _held(called: Value, slots: _Slots) -> Value:
    """What a parameter that is called holds: `lambda x, block=block: block(x)`."""
    if not isinstance(called, Param) or called.name not in slots.named:
        return called
    given = slots.named[called.name]
    return given.value if given.position is not None or called.default is None else called.default


def _last_calls(node: FunctionNode) -> list[ast.Call]:
    """The calls of which a function makes one, by its conditions, and nothing else."""
    only = only_call(node)
    if only is not None or isinstance(node, ast.Lambda):
        return [] if only is None else [only]
    return _returned([statement for statement in node.body if not is_docstring(statement)])


def _returned(body: list[ast.stmt]) -> list[ast.Call]:
    """The calls that ``body`` returns when each of its ways does nothing but return one."""
    value = value_of(body)
    if isinstance(value, ast.Call):
        return [value]
    match body:
        case [ast.If(body=taken, orelse=other), *rest] if not (other and rest):
            first, second = _returned(taken), _returned(other or rest)
            return [*first, *second] if first and second else []
    return []


def _slots(node: FunctionNode, given: list[Argument]) -> _Slots | None:
    """Where the arguments go; None when the call does not fit the function."""
    parameters = positional_names(node)
    positional = [argument for argument in given if argument.position is not None]
    named = dict(zip(parameters, positional, strict=False))
    extra = []
    for argument in given:
        if argument.name is not None and argument.name in parameters:
            named[argument.name] = argument
        elif argument.name is not None:
            extra.append(argument)
    named = {name: Argument(part, _constant(part), None, name) for name, part in defaults(node).items()} | named
    star, stars = (part.arg if part is not None else None for part in (node.args.vararg, node.args.kwarg))
    rest = positional[len(parameters) :]
    fits = not node.args.kwonlyargs and named.keys() >= set(parameters)
    return _Slots(named, rest, extra, star, stars) if fits and (star or not rest) and (stars or not extra) else None


def _constant(node: ast.expr) -> Value:
    return Const(node.value, node) if isinstance(node, ast.Constant) else UNKNOWN


def _hidden(function: Function, caller: Function | None) -> frozenset[str]:
    """The names that mean something else in ``function``, by it or by what is around it, than in its ``caller``."""
    found: frozenset[str] = frozenset()
    inside: Function | None = function
    while inside is not None and (caller is None or inside.node is not caller.node):
        found |= parameter_names(inside.node).union(bound_names(inside.node))
        inside = inside.place.function
    return found


def _arguments(inner: Call, slots: _Slots, hidden: frozenset[str]) -> list[Argument] | None:
    """The arguments of ``inner``, those that are parameters of the function around it replaced by what they hold."""
    found: list[Argument] = []
    for index, part in enumerate(inner.node.args):
        parts = _parts_of(part, slots, hidden, inner.args[index] if index < len(inner.args) else UNKNOWN)
        if parts is None:
            return None
        found += [part._replace(position=len(found) + at, name=None) for at, part in enumerate(parts)]
    for keyword in inner.node.keywords:
        if keyword.arg is None:
            if not isinstance(keyword.value, ast.Name) or keyword.value.id != slots.stars:
                return None
            found += slots.extra
            continue
        parts = _parts_of(keyword.value, slots, hidden, inner.kwargs.get(keyword.arg, UNKNOWN))
        if parts is None:
            return None
        found += [part._replace(position=None, name=keyword.arg) for part in parts]
    return found


def _parts_of(node: ast.expr, slots: _Slots, hidden: frozenset[str], value: Value) -> list[Argument] | None:
    """What ``node`` passes on; None when that is not known around the first call."""
    match node:
        case ast.Starred(value=ast.Name(id=name)) if name == slots.star:
            return slots.rest
        case ast.Starred():
            return None
        case ast.Name(id=name) if name in slots.named:
            return [slots.named[name]]
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(at))) if name == slots.star:
            return [slots.rest[at]] if 0 <= at < len(slots.rest) else None
    if names_in(node) & hidden:
        # A name of the function around it: `def create_custom_forward(module, return_dict)`.
        constant = isinstance(value, Const) and isinstance(value.node, ast.Constant)
        return [Argument(value.node, value, None, None)] if constant and isinstance(value.node, ast.expr) else None
    return [Argument(node, value, None, None)]
