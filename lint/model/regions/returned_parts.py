"""What modules and functions of the file return beside their result, followed to what made it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, returned_by
from ...facts.values import Element, Param, Result, options
from ..state.gradient_free import is_gradient_free
from ..state.gradless import carries_gradient
from .call_targets import call_targets

if TYPE_CHECKING:
    from ...facts.values import Function
    from ..run import Run


def gives_gradient(run: Run, part: Element) -> bool:
    """Whether ``part`` of a tuple is what every function that may give it computed: `h, loss = layer(h)`."""
    made, index = part.of, part.index
    if not isinstance(made, Result) or not isinstance(index, int) or is_gradient_free(made.call):
        return False
    called = [made.call.func]
    if isinstance(made.call.func, Param):
        called = run.bodies.given_for(made.call.func)
    bodies = [body for value in called for body in call_targets(value)]
    if not bodies or len(bodies) < sum(len(options(value)) for value in called):
        return False
    return all(_returns_computed(run, body.function, index) for body in bodies)


def _returns_computed(run: Run, function: Function, index: int) -> bool:
    returned = returned_by(function.node)
    return bool(returned) and all(
        isinstance(value, ast.Tuple)
        and -len(value.elts) <= index < len(value.elts)
        and _is_computed(run, value.elts[index], function)
        for value in returned
    )


def _is_computed(run: Run, node: ast.expr, function: Function) -> bool:
    """Whether ``node`` is what a call, or an operation on one, gave with its gradient."""
    match node:
        case ast.Call():
            calls = [call for call in run.bodies.calls_in(function) if call.node is node]
            return bool(calls) and not any(
                is_gradient_free(call) or not carries_gradient(Result(call)) for call in calls
            )
        case ast.BinOp(left=left, right=right):
            return any(_is_computed(run, side, function) for side in (left, right))
        case ast.Name(id=name):
            parts = [*all_nodes(function.node)]
            stores = [part for part in parts if isinstance(part, ast.Name | ast.arg) and _stores(part, name)]
            bound = [part.value for part in parts if isinstance(part, ast.Assign) and _binds(part, name)]
            return len(stores) == len(bound) == 1 and _is_computed(run, bound[0], function)
    return False


def _stores(node: ast.Name | ast.arg, name: str) -> bool:
    if isinstance(node, ast.arg):
        return node.arg == name
    return node.id == name and isinstance(node.ctx, ast.Store)


def _binds(node: ast.Assign, name: str) -> bool:
    match node.targets:
        case [ast.Name(id=bound)]:
            return bound == name
    return False
