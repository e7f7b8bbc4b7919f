"""Call expressions: arguments bound, partials unwrapped, functions of the file followed, builtins understood."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..objects.attributes import get_attribute
from ..objects.children import hold_given
from ..objects.classes import ancestors, is_dataclass, is_plain, method_of
from ..objects.containers import GAP, elements, length_of
from ..objects.dataclass_fields import attributes_as_dict
from ..values import (
    UNKNOWN,
    Absent,
    Arguments,
    Attr,
    Call,
    Choice,
    Class,
    Const,
    Dict,
    Element,
    Function,
    Guard,
    Instance,
    Method,
    Partial,
    Result,
    Seq,
    Unknown,
    Value,
    conditional_options,
    join,
    join_under,
    options,
)
from .builtin_calls import call_known
from .entry_points import as_command
from .handing_on import handed_through, resolve
from .model_makers import with_model_made
from .picked import argument_picked
from .ways_to_call import ways_to_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..walk import Walk


def evaluate_call(walk: Walk, node: ast.Call) -> Value:
    """Record the call, once for each function it may mean, and give what it returns."""
    called = walk.evaluate(node.func)
    arguments = arguments_of(walk, node, walk.evaluate)
    targets = [found for found in _each_called(called) if not isinstance(found[0], Const | Absent)]
    outside = walk.place
    results = []
    for target, under in targets or [(UNKNOWN, ())]:
        for way in ways_to_call(walk, target, arguments):
            around = (*under, *way.under)
            walk.place = outside._replace(guards=(*outside.guards, *around)) if around else outside
            results.append((way.returned(_call_one(walk, node, way.target, way.given), node), around))
    walk.place = outside
    if walk.entered_on_stack:
        # In force until the `with` block of the stack ends, which brings back its own place.
        walk.place = outside._replace(contexts=(*outside.contexts, *walk.entered_on_stack))
        walk.entered_on_stack = ()
    return join_under(*results)


def _each_called(called: Value) -> Iterator[tuple[Value, tuple[Guard, ...]]]:
    """What ``called`` may be, with its conditions; a partial of a method of several objects is one of each."""
    for found, under in conditional_options(called):
        if isinstance(found, Partial) and isinstance(found.func, Choice) and _is_one_method(found.func):
            yield from ((Partial(func, found.call), (*under, *more)) for func, more in conditional_options(found.func))
        else:
            yield found, under


def _is_one_method(function: Choice) -> bool:
    """Whether all that it may be are methods of one name; of functions another library's may be the one that runs."""
    methods = [it for it in function.options if isinstance(it, Attr | Method)]
    names = {it.name if isinstance(it, Attr) else it.function.name for it in methods}
    return len(names) == 1 and len(methods) == len(function.options)


def arguments_of(walk: Walk, node: ast.Call, evaluate: Callable[[ast.expr], Value]) -> Arguments:
    """The arguments of a call expression, each evaluated once."""
    given = Arguments()
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            _add_star(given, evaluate(argument.value))
        else:
            _add(given, argument_picked(walk, argument, evaluate(argument)))
    for keyword in node.keywords:
        value = evaluate(keyword.value)
        if keyword.arg is None:
            _add_double_star(given, attributes_as_dict(value, node, walk.place))
        else:
            given.kwargs[keyword.arg] = value
    return given


def _add(given: Arguments, value: Value) -> None:
    if not given.open_args:
        given.args.append(value)
        return
    given.unpacked = None
    # Behind an unknown `*args` a position means nothing.
    given.spread.append(value)
    _count(given, 1)


def _count(given: Arguments, more: int | None) -> None:
    given.spread_count = None if more is None or given.spread_count is None else given.spread_count + more


def _add_star(given: Arguments, value: Value) -> None:
    if isinstance(value, Seq) and not value.open and not given.open_args:
        given.args += value.items
    else:
        given.unpacked = value if isinstance(value, Element) and not given.open_args else None
        given.open_args = True
        given.spread += elements(value)
        _count(given, length_of(value))


def _add_double_star(given: Arguments, value: Value) -> None:
    choices = [option for option in options(value) if isinstance(option, Dict)]
    given.mappings += [value] if len(choices) > 1 else []
    given.open_kwargs |= len(choices) < len(options(value)) or any(choice.open for choice in choices)
    for key in dict.fromkeys(key for choice in choices for key in choice.items if GAP not in key):
        value = join(*(choice.get(key) for choice in choices))
        # What is written beside it is what counts when the dict lost the key: both would raise.
        if key not in given.kwargs or not any(isinstance(option, Absent) for option in options(value)):
            given.kwargs[key] = value


def _call_one(walk: Walk, node: ast.Call, target: Value, given: Arguments) -> Value:
    given = with_model_made(walk, node, target, given)
    call = Call(node, target, walk.place, walk.program.next_order(), given)
    call.grad = walk.program.grad.current
    resolve(walk, call)
    call.func = _own_call(call.func)
    walk.program.calls.append(call)
    return _result(walk, call)


def _own_call(called: Value) -> Value:
    """What calling an object of a plain class runs: its ``__call__``; a module runs its hooks, too."""
    match called:
        case Instance(cls) if is_plain(cls) and called.call is not None:
            method = get_attribute(called, "__call__", called.node)
            return method if isinstance(method, Method) else called
    return called


def _result(walk: Walk, call: Call) -> Value:
    match call.func:
        case Function() as function:
            given = walk.follow(function, as_command(walk, function, call), None)
            return handed_through(call) or given
        case Method(receiver, function):
            given = walk.follow(function, call, receiver)
            return handed_through(call) or given
        case Class() as cls:
            return _instantiate(walk, cls, call)
        case Choice():
            return Unknown(call.node)
    return call_known(walk, call) or Result(call)


def _instantiate(walk: Walk, cls: Class, call: Call) -> Value:
    instance = Instance(cls, call)
    if not any(isinstance(owner.body.get("__init__"), Function) for owner in (cls, *ancestors(cls))):
        hold_given(instance, call)
    for owner in (cls, *ancestors(cls)):
        initialiser = owner.body.get("__init__")
        if isinstance(initialiser, Function):
            walk.follow(initialiser, call, instance)
            return instance
    if is_dataclass(cls):
        _finish(walk, instance, call)
    return instance


def _finish(walk: Walk, instance: Instance, call: Call) -> None:
    """Run ``__post_init__``, which the constructor of a dataclass calls at its end."""
    found = method_of(instance.cls, "__post_init__")
    if found is not None:
        run = Call(call.node, found, walk.place, call.order)
        run.open_args = True  # It gets the fields that are for the constructor alone (`InitVar`).
        walk.follow(found, run, instance)
