"""The parameters of a function as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast

    from .values import FunctionNode


def defaults(function: FunctionNode) -> dict[str, ast.expr]:
    """By the name of each parameter that has a default: the expression of that."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    found = dict(zip((argument.arg for argument in reversed(positional)), reversed(arguments.defaults), strict=False))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            found[argument.arg] = default
    return found


def positional_names(function: FunctionNode) -> list[str]:
    """The names of the parameters that a call may fill by position, `self` among them."""
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]


def parameter_names(function: FunctionNode) -> frozenset[str]:
    """The names of all parameters, ``*args`` and ``**kwargs`` among them."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return frozenset(argument.arg for argument in every if argument is not None)
