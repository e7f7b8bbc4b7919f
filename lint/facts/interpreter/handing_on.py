"""Functions that hand everything on: `def run(*args, **kwargs): return checkpoint(*args, **kwargs)`.

A call `run(block, x)` is one of `checkpoint` itself, made where `run` is called.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ..nodes import all_nodes
from ..objects.classes import is_run_as_written
from ..parameters import parameter_names, positional_names
from ..scopes import bound_names
from ..straight import only_call
from ..values import Call, Class, Const, Function, Method, Partial, Ref, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..values import FunctionNode
    from ..walk import Walk

#: Helpers of helpers.
_MAX_STEPS = 4


def resolve(walk: Walk, call: Call) -> None:
    """Make ``call`` one of what is run in the end, behind partials and functions that hand everything on."""
    _take_apart(call)
    for _ in range(_MAX_STEPS):
        match call.func:
            case Function() as function:
                found = _handed_to(walk, call, function, 0)
            case Method(_, function):
                found = _handed_to(walk, call, function, 1)
            case _:
                return
        if found is None:
            return
        inner, called, own = found
        call.func = called if not own else _with_own(walk, inner, called, own)
        walk.program.handing_on.add(function.node)
        call.handed = (*call.handed, inner)
        _take_apart(call)


def _with_own(walk: Walk, inner: ast.Call, called: Value, own: Mapping[str, ast.Constant]) -> Partial:
    """What a function calls that adds keywords of its own: as if a partial gave them."""
    made = Call(inner, called, walk.place, walk.program.next_order())
    made.args, made.kwargs = [called], {name: Const(node.value, node) for name, node in own.items()}
    return Partial(called, made)


def _take_apart(call: Call) -> None:
    while isinstance(call.func, Partial):
        partial = call.func
        call.via = (*call.via, partial)
        call.args = [*partial.args, *([] if partial.open_args else call.args)]
        call.kwargs = {**partial.kwargs, **call.kwargs}
        call.open_args |= partial.open_args
        call.unpacked = None if partial.open_args else call.unpacked
        call.open_kwargs |= partial.open_kwargs
        call.func = partial.func


def _handed_to(
    walk: Walk, call: Call, function: Function, taken: int
) -> tuple[ast.Call, Value, Mapping[str, ast.Constant]] | None:
    """The call that ``function`` makes of ``call``, what that calls, and the keywords that it adds; None for others."""
    inner = _only_call(function.node)
    if inner is None or function.decorators:
        return None
    names = positional_names(function.node)
    own = _own_keywords(inner, function.node, names[taken:])
    if own is None or not call.kwargs.keys().isdisjoint((*names, *own)):
        return None
    if function.node.args.kwarg is None and (call.kwargs or call.open_kwargs):
        return None
    called = _evaluated_around(walk, function, inner.func)
    return (inner, called, own) if isinstance(called, Ref | Class | Function | Partial) else None


class Wrapper(NamedTuple):
    """What a decorator makes of a function: it gives what the function gives for the same arguments."""

    node: ast.FunctionDef
    #: Whether it does something beside: a timer, a log.
    does_more: bool
    #: The contexts in which it calls the function.
    contexts: tuple[ast.expr, ...] = ()


def handed_through(call: Call) -> Value | None:
    """What ``call`` gives for what it gets, where that is the same to whoever calls it; None for other calls.

    `create_custom_forward(block)` gives a function that calls `block` with all that it gets.
    """
    match call.func:
        case Function() as function:
            taken = 0
        case Method(_, function):
            taken = 1
        case _:
            return None
    wrapper = wrapper_made(function, taken) if is_run_as_written(function) else None
    if wrapper is None or wrapper.does_more or len(call.args) != 1 or call.open_args:
        return None
    return call.args[0]


def wrapper_made(decorator: Function, taken: int = 0) -> Wrapper | None:
    """What ``decorator`` makes of each function that it gets, where that hands everything on; None for others.

    Args:
        decorator: The function of the file.
        taken: How many of its parameters are given before, such as the object of a method.
    """
    node = decorator.node
    parameters = positional_names(node)[taken : taken + 1]
    if not isinstance(node, ast.FunctionDef) or not parameters:
        return None
    match node.body[-1]:
        case ast.Return(value=ast.Name(id=name)):
            inner = [it for it in node.body if isinstance(it, ast.FunctionDef) and it.name == name]
        case _:
            return None
    if len(inner) != 1 or not all(_copies_name(it, parameters[0]) for it in inner[0].decorator_list):
        return None
    if parameters[0] in bound_names(node):
        return None
    only, (within, contexts) = _only_call(inner[0]), _call_in_contexts(inner[0])
    call = only or within or _kept_call(inner[0])
    if call is None or not _passes_all(call, inner[0], positional_names(inner[0])):
        return None
    is_it = isinstance(call.func, ast.Name) and call.func.id == parameters[0]
    return (
        Wrapper(inner[0], only is None, contexts) if is_it and parameters[0] not in parameter_names(inner[0]) else None
    )


def _copies_name(decorator: ast.expr, name: str) -> bool:
    return ast.unparse(decorator) in (f"functools.wraps({name})", f"wraps({name})")


def _only_call(node: FunctionNode) -> ast.Call | None:
    """The call that a function makes as its caller would: under no context of its own."""
    under_context = isinstance(node.body, list) and any(isinstance(part, ast.With | ast.Try) for part in node.body)
    return None if under_context or isinstance(node, ast.AsyncFunctionDef) else only_call(node)


def _call_in_contexts(node: ast.FunctionDef) -> tuple[ast.Call | None, tuple[ast.expr, ...]]:
    """The call that a function makes in contexts that its caller does not see, and does nothing else, with these."""
    match node.body:
        case [ast.With(items=items, body=[ast.Return(value=ast.Call() as call)])]:
            if all(item.optional_vars is None for item in items):
                return call, tuple(item.context_expr for item in items)
    return None, ()


def _kept_call(node: ast.FunctionDef) -> ast.Call | None:
    """The call whose result a function returns at its end, and nowhere else, after or before it does other things."""
    *before, last = node.body
    nodes = [*all_nodes(node)]
    if sum(isinstance(part, ast.Return | ast.Yield | ast.YieldFrom) for part in nodes) != 1:
        return None
    result = last.value.id if isinstance(last, ast.Return) and isinstance(last.value, ast.Name) else ""
    # What else reads the arguments or the result may change them.
    named = Counter(part.id for part in nodes if isinstance(part, ast.Name))
    given = [part.arg for part in (node.args.vararg, node.args.kwarg) if part is not None]
    if named[result] != 2 or any(named[name] != 1 for name in given):
        return None
    for statement in before:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if name == result:
                return call
    return None


def _passes_all(inner: ast.Call, node: FunctionNode, names: list[str]) -> bool:
    """Whether ``inner`` gets what the parameters hold, ``names`` before `*args` and `**kwargs`, and nothing else."""
    return _own_keywords(inner, node, names) == {}


def _own_keywords(inner: ast.Call, node: FunctionNode, names: list[str]) -> Mapping[str, ast.Constant] | None:
    """The constants that ``inner`` gets besides ``names``, `*args` and `**kwargs`; None where it gets anything else."""
    arguments = node.args
    if arguments.vararg is None or arguments.kwonlyargs or arguments.defaults:
        return None
    own = {word.arg: word.value for word in inner.keywords if word.arg and isinstance(word.value, ast.Constant)}
    rest = [ast.unparse(word) for word in inner.keywords if word.arg not in own]
    wanted = [] if arguments.kwarg is None else [f"**{arguments.kwarg.arg}"]
    given = [*map(ast.unparse, inner.args)]
    return own if rest == wanted and given == [*names, f"*{arguments.vararg.arg}"] else None


def _evaluated_around(walk: Walk, function: Function, written: ast.expr) -> Value | None:
    """What ``written`` means around ``function``; None where it is more than a name, or one of its own."""
    first = written
    while isinstance(first, ast.Attribute):
        first = first.value
    own = {*positional_names(function.node), *bound_names(function.node)}
    if not isinstance(first, ast.Name) or first.id in own:
        return None
    inner, walk.scope = walk.scope, function.scope
    value = walk.evaluate(written)
    walk.scope = inner
    return value
