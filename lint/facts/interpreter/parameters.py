"""What the parameters of a function mean in its body: what a caller gives, or themselves where nobody calls it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..objects.annotations import annotated
from ..objects.classes import decorator_names, is_class_method
from ..objects.own_model import own_model, says_no_class
from ..parameters import defaults
from ..values import Dict, Element, Function, Given, Instance, Param, Ref, Seq, Unknown, Value

if TYPE_CHECKING:
    from ..values import Call
    from ..walk import Walk


def bind_unknown(walk: Walk, function: Function, instance: Instance | None) -> None:
    """Parameters without a caller: `self` is the object of the class, the rest stand for themselves."""
    arguments = function.node.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    written = defaults(function.node)
    for index, argument in enumerate(names):
        if index == 0 and instance is not None and not _is_static(function):
            walk.scope.names[argument.arg] = instance.cls if is_class_method(function) else instance
            continue
        param = Param(argument.arg, function, argument)
        param.default = _evaluate_in(walk, function, written.get(argument.arg))
        param.annotation = _annotation(walk, function, argument)
        known = annotated(argument.annotation, function.scope) or _injected(param)
        if known is None and argument.arg not in written and says_no_class(argument.annotation):
            known = own_model(walk.program, function, argument)
        walk.scope.names[argument.arg] = known or param
    if arguments.vararg:
        declared = annotated(arguments.vararg.annotation, function.scope)
        held = [] if declared is None else [declared]
        walk.scope.names[arguments.vararg.arg] = Seq("tuple", held, True, arguments.vararg, walk.place)
    if arguments.kwarg:
        walk.scope.names[arguments.kwarg.arg] = Dict({}, True, arguments.kwarg, walk.place)


def bind_given(walk: Walk, function: Function, call: Call, receiver: Value | None) -> None:
    """Parameters for ``call``; ``receiver`` is `self`, None for a plain function."""
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    names = walk.scope.names
    given = call.args
    if receiver is not None and positional and not _is_static(function):
        given = [receiver, *given]
    written = defaults(function.node)
    for index, argument in enumerate([*positional, *arguments.kwonlyargs]):
        name = argument.arg
        if index < min(len(given), len(positional)):
            names[name] = given[index]
        elif name in call.kwargs:
            names[name] = call.kwargs[name]
        elif call.unpacked is not None and index < len(positional) and name not in written:
            names[name] = Element(call.unpacked, argument, index - len(given))
        elif (call.open_args and index < len(positional)) or call.open_kwargs:
            names[name] = Unknown(argument)
        else:
            names[name] = _evaluate_in(walk, function, written.get(name)) or Unknown(argument)
    if arguments.vararg:
        names[arguments.vararg.arg] = Seq(
            "tuple", given[len(positional) :], call.open_args, arguments.vararg, walk.place
        )
    if arguments.kwarg:
        known = {argument.arg for argument in [*arguments.args, *arguments.kwonlyargs]}
        rest = {name: _passed_on(call, name) for name in call.kwargs if name not in known}
        names[arguments.kwarg.arg] = Dict(rest, call.open_kwargs, arguments.kwarg, walk.place)


def _passed_on(call: Call, name: str) -> Value:
    """What `**kwargs` hold under ``name``: what the call itself writes is there, whatever it is."""
    value = call.kwargs[name]
    return Given(value.node) if type(value) is Unknown and call.written(name) else value


def _injected(param: Param) -> Value | None:
    """`def run(block, checkpoint=checkpoint)`: an imported function that is bound early under its own name."""
    default = param.default
    is_early = isinstance(default, Ref) and default.name.rpartition(".")[2] == param.name
    return default if is_early else None


def _annotation(walk: Walk, function: Function, argument: ast.arg) -> Value | None:
    annotation: ast.AST | None = argument.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError):
            return None
    return _evaluate_in(walk, function, annotation)


def _evaluate_in(walk: Walk, function: Function, node: ast.AST | None) -> Value | None:
    if node is None:
        return None
    inner, walk.scope = walk.scope, function.scope
    value = walk.evaluate(node)
    walk.scope = inner
    return value


def _is_static(function: Function) -> bool:
    return "builtins.staticmethod" in decorator_names(function)
