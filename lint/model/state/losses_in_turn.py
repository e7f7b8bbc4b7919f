"""Losses of one model that a loop takes in turn, each with its backward pass and a step of the optimizer."""

from __future__ import annotations

import ast
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, is_behind, is_inside, start
from ...facts.surroundings import holders, parents_in
from ...facts.values import equals, options
from ..flow.frames import iteration_of
from ..flow.iterations import is_last_iteration
from ..flow.statements import body_around
from ..types import unwrapped
from .weights import is_built_by_itself, is_certainly_one

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...facts.values import Call, Loop, Value
    from ..flow.loss import Losses
    from ..run import Run

#: Functions that hand out the elements of their first argument in turn.
_IN_TURN = frozenset(("enumerate", "list", "tuple", "zip"))
#: How many variables and calls lead to what a loop takes.
_DEPTH = 4


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
    taken = _taken_by(body_around(run, backward), loop)
    fed = [index for index, part in enumerate(taken.values) if losses.comes_from(forward, backward, part)]
    if taken.are_repeated:
        return None if fed else 0
    again = -1 if keeps_graph(backward) else 0
    return fed[again] if fed else 0


class _Taken(NamedTuple):
    """What a loop takes in turn."""

    values: Sequence[ast.expr] = ()
    #: Whether another loop makes several of each; else they come in the order they are written.
    are_repeated: bool = False


class _Filling(NamedTuple):
    """A statement or a call that binds, fills or empties a list or dict."""

    node: ast.AST
    value: ast.expr | None
    adds: bool


@lru_cache(maxsize=1024)
def _taken_by(body: ast.AST, loop: ast.For) -> _Taken:
    value = loop.iter
    for _ in range(_DEPTH):
        match value:
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _IN_TURN:
                value = inner
            case ast.Call(func=ast.Attribute(value=inner, attr="items" | "values"), args=[]):
                value = inner
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Dict(values=items):
                return _Taken(items)
            case ast.ListComp(elt=made) | ast.DictComp(value=made):  # A generator makes each one in its own iteration.
                return _Taken([made], are_repeated=True)
            case ast.Name(id=name):
                bound, added = _filled_before(body, name, loop)
                if added:
                    return _Taken(added, are_repeated=True)
                if bound is None:
                    break
                value = bound
            case _:
                break
    return _Taken()


def _filled_before(body: ast.AST, name: str, loop: ast.For) -> tuple[ast.expr | None, list[ast.expr]]:
    """What ``name`` holds at ``loop``: what it was bound to last, and what loops have added since."""
    before = [filling for filling in _fillings_in(body).get(name, ()) if is_behind(loop, filling.node)]
    since = [*takewhile(lambda filling: filling.adds, reversed(before))]
    bound = before[-1 - len(since)] if len(since) < len(before) else None
    if bound is not None and not since:
        around = {body, *holders(loop, body)}
        return (bound.value, []) if parents_in(body).get(bound.node) in around else (None, [])
    loops = [node for node in all_nodes(body) if isinstance(node, ast.For)] if since else []
    added = [it for it in since if any(_repeats(around, it, bound, loop) for around in loops)]
    return None, [it.value for it in added if it.value is not None]


def _repeats(around: ast.For, filling: _Filling, bound: _Filling | None, loop: ast.For) -> bool:
    """Whether ``around``, over before ``loop`` or around it, fills a list several times before that takes it."""
    if not is_inside(filling.node, around) or around is loop:
        return False
    gathers = is_inside(loop, around) and not (bound is not None and is_inside(bound.node, around))
    return is_behind(loop, around) or gathers


@lru_cache(maxsize=64)
def _fillings_in(body: ast.AST) -> dict[str, list[_Filling]]:
    """By the name of a list or a dict what fills it, in the order it is written."""
    found: dict[str, list[_Filling]] = {}
    for node in all_nodes(body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(_Filling(node, value, adds=False))
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))], value=value):
                found.setdefault(name, []).append(_Filling(node, value, adds=True))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                found.setdefault(name, []).append(_Filling(node, value, adds=True))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="clear" | "pop")):
                found.setdefault(name, []).append(_Filling(node, None, adds=False))
    for fillings in found.values():
        fillings.sort(key=lambda filling: start(filling.node))
    return found
