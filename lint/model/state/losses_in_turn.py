"""Losses of one model that a loop takes in turn, each with its backward pass and a step of the optimizer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, is_behind, is_inside
from ...facts.values import equals, options
from ..flow.frames import iteration_of
from ..flow.iterations import is_last_iteration
from ..flow.statements import body_around
from ..types import unwrapped
from .weights import is_built_by_itself, is_certainly_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Loop, Value
    from ..flow.loss import Losses
    from ..run import Run

#: Functions that hand out the elements of their first argument in turn.
_IN_TURN = frozenset(("enumerate", "list", "tuple", "zip"))


def loop_over_losses(backward: Call) -> ast.For | None:
    """The loop around ``backward`` that gives it another loss in each iteration, in all of them."""
    loop = backward.place.loops[-1] if backward.place.loops else None
    if not isinstance(loop, ast.For) or names_in(loop.target).isdisjoint(names_in(backward.node)):
        return None
    return None if is_chosen_in(backward, loop) or is_last_iteration(loop, backward.node) else loop


def steps_before_later_losses(
    run: Run, losses: Losses, forward: Call, backward: Call, loop: ast.For
) -> Iterator[tuple[Call, ...]]:
    """The steps in ``loop`` that come before the backward pass of a loss, from ``forward``, of a later iteration.

    Yields:
        The calls of one ``step()``: one for each iteration where they are known.
    """
    last = _last_of(run, losses, forward, backward, loop)
    if last == 0:
        return
    found: dict[ast.AST, list[Call]] = {}
    for step in run.method_calls("step"):
        if iteration_of(step) == iteration_of(backward) and not is_chosen_in(step, loop):
            found.setdefault(step.node, []).append(step)
    for steps in found.values():
        # Of the optimizers that a loop takes in turn, the last one steps behind all backward passes.
        known = len(steps) > 1 and last is not None
        yield tuple(steps[:last] if known else steps)


def are_known(steps: tuple[Call, ...]) -> bool:
    """Whether each of the steps is one of one optimizer."""
    return all(len(options(step.receiver)) == 1 for step in steps)


def is_always(run: Run, forward: Call, model: Value) -> bool:
    """Whether ``forward`` calls the one ``model`` in each iteration: not `[net(x) for net in nets]`."""
    called = (unwrapped(call.func) for call in run.calls_at(forward.node))
    return is_built_by_itself(model, forward) and all(is_certainly_one(run, it, model) for it in called)


def keeps_graph(backward: Call) -> bool:
    """Whether another backward pass may go through the same graph."""
    return any(equals(backward.argument(None, name), True) is True for name in ("retain_graph", "create_graph"))


def is_chosen_in(call: Call, loop: Loop) -> bool:
    """Whether a condition in ``loop`` decides over ``call``."""
    return any(is_inside(guard.test, loop) and not guard.asserted for guard in call.place.guards)


def _last_of(run: Run, losses: Losses, forward: Call, backward: Call, loop: ast.For) -> int | None:
    """In which iteration of ``loop``, counted from 0, the last loss of ``forward`` has its turn; None for a later one.

    0 where that is not known.
    """
    body = body_around(run, backward)
    listed = _elements(body, loop)
    match listed:
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Dict(values=items):
            fed = [index for index, item in enumerate(items) if losses.comes_from(forward, backward, item)]
            again = -1 if keeps_graph(backward) else 0
            return fed[again] if fed else 0
        case ast.ListComp(elt=made) | ast.DictComp(value=made):  # A generator makes each loss in its own iteration.
            return None if losses.comes_from(forward, backward, made) else 0
        case ast.Name(id=name):
            return None if _is_filled(body, losses, forward, backward, name, loop) else 0
    return 0


def _elements(body: ast.AST, loop: ast.For) -> ast.expr:
    """What holds the elements that ``loop`` takes, as it is written; the name of a list that is filled bit by bit."""
    value = loop.iter
    for _ in range(4):
        match value:
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _IN_TURN:
                value = inner
            case ast.Call(func=ast.Attribute(value=inner, attr="items" | "values"), args=[]):
                value = inner
            case ast.Name(id=name):
                bound = _bound_before(body, name, loop)
                if bound is None or not _holds_something(bound):
                    break
                value = bound
            case _:
                break
    return value


def _holds_something(value: ast.expr) -> bool:
    match value:
        case ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Call(args=[]):
            return False
    return True


def _bound_before(body: ast.AST, name: str, loop: ast.For) -> ast.expr | None:
    """What the one assignment to ``name`` before ``loop`` gives it; None where there are several."""
    found = [
        node.value
        for node in all_nodes(body)
        if isinstance(node, ast.Assign) and is_behind(loop, node) and _binds(node.targets, name)
    ]
    return found[0] if len(found) == 1 else None


def _binds(targets: list[ast.expr], name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _is_filled(body: ast.AST, losses: Losses, forward: Call, backward: Call, name: str, loop: ast.For) -> bool:
    """Whether a loop that is over before ``loop``, or goes on around it, adds losses of ``forward`` to ``name``."""
    for node in all_nodes(body):
        if isinstance(node, ast.For) and (is_behind(loop, node) or _gathers(node, name, loop)):
            added = (part for part in all_nodes(node) if is_behind(loop, part))
            values = (value for part in added if (value := _added(part, name)) is not None)
            if any(losses.comes_from(forward, backward, value) for value in values):
                return True
    return False


def _gathers(around: ast.For, name: str, loop: ast.For) -> bool:
    """Whether ``name`` keeps, up to ``loop``, what other iterations of the loop ``around`` it added."""
    if around is loop or not is_inside(loop, around):
        return False
    return not any(_empties(node, name) for node in all_nodes(around) if is_behind(loop, node))


def _empties(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Assign(targets=targets):
            return _binds(targets, name)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=emptied), attr=method)):
            return emptied == name and method != "append"
    return False


def _added(node: ast.AST, name: str) -> ast.expr | None:
    """What ``node`` adds to the list or dict ``name``."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=filled), attr="append"), args=[added]) if filled == name:
            return added
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=filled))], value=added) if filled == name:
            return added
    return None
