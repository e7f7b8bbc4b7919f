"""What a function or a module runs that makes one call with its inputs as they are: `lambda x: F.gelu(x)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.straight import only_call
from ...facts.values import Partial, join
from ..regions.given_parameters import GivenParameters, called_parameter
from .call_targets import call_targets

if TYPE_CHECKING:
    from ...facts.values import Function, Value
    from ..events.checkpoints import FunctionCheckpoint
    from ..history import History

#: More functions than this that only call another one are not looked into.
_HOPS = 3


def only_called(run: History, function: Value, hops: int = _HOPS) -> Value:
    """What ``function`` calls in the end, where each of them does nothing else; ``function`` itself elsewhere."""
    if isinstance(function, Partial):
        return only_called(run, function.func, hops)
    inner = [_called_by(run, target.function) for target in call_targets(function)]
    if len(inner) != 1 or inner[0] is None or not hops:
        return function
    return only_called(run, inner[0], hops - 1)


def entered_by(run: History, checkpoint: FunctionCheckpoint, hops: int = _HOPS) -> Value:
    """What ``checkpoint`` runs in the end, or by the function that it gets: `checkpoint(lambda x, f=block: f(x), x)`.

    Args:
        run: The program.
        checkpoint: The checkpoint.
        hops: Through how many functions that only call another one it is followed.
    """
    called = only_called(run, checkpoint.function, hops)
    param = called_parameter(called)
    if param is None:
        return called
    given = GivenParameters(checkpoint.function, checkpoint.inputs, checkpoint.function_kwargs)
    values = given.values_of(param) if given.knows(param.function) else []
    return join(*values) if values else called


def _called_by(run: History, function: Function) -> Value | None:
    """What the one call of ``function`` calls; None where it does more, computes an argument, or enters a context."""
    call = only_call(function.node)
    if call is None or any(isinstance(part, ast.With | ast.AsyncWith) for part in all_nodes(function.node)):
        return None
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    called = {id(made.func): made.func for made in run.calls_at(call)}
    return next(iter(called.values())) if len(called) == 1 and all(map(_is_as_it_is, given)) else None


def _is_as_it_is(node: ast.expr) -> bool:
    """Whether an argument is a name, an attribute or a part of one: nothing is computed for it."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return isinstance(node, ast.Name | ast.Constant)
