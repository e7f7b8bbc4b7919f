"""Adapters that a loop makes active one after the other, for losses that one backward pass behind it gets."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, is_inside, uncounted
from ...facts.parameters import positional_names
from ...facts.values import Method, one
from ..flow.frames import call_beside, iteration_of
from ..flow.statements import body_around
from ..texts.written_texts import WrittenTexts
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Value
    from ..run import Run


def adapters_in_turn(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The ``set_adapter`` of a loop around ``forward`` whose iterations have other adapters than the last one.

    Args:
        run: The run.
        model: The model that ``forward`` calls.
        forward: Its call, in a loop that sums up losses.
        backward: What gets the sum, behind the loop.
    """
    beside = call_beside(run, forward, backward)
    own = beside or forward
    loop = _loop_left(own, backward)
    if loop is not None:
        is_summed = _sums_up(run, loop, backward)
    else:
        # A function that goes through the adapters gives the sum to whoever calls `backward()`.
        own, loop = forward, _loop_of_helper(forward) if beside is not None else None
        is_summed = loop is not None and _gives_sum(run, loop, forward)
    if loop is None or not is_summed or not _has_several(run, loop, own):
        return
    variables = names_in(loop.target)
    for call in run.method_calls("set_adapter"):
        change = call_beside(run, call, own) or call
        is_together = iteration_of(change) == iteration_of(own) and not call.place.excludes(forward.place)
        given = _written_beside(call, change)
        if is_together and one(unwrapped(call.receiver), model) and any(variables & names_in(part) for part in given):
            yield change


def _written_beside(call: Call, change: Call) -> list[ast.expr]:
    """What ``call`` is given, as ``change`` writes it: the call itself, or one of the function that makes it."""
    given = [*call.node.args, *(word.value for word in call.node.keywords)]
    function = call.place.function
    if change is call or function is None:
        return given
    names = positional_names(function.node)[isinstance(change.func, Method) :]
    handed = change.written_arguments(names)
    return [handed[part.id] for part in given if isinstance(part, ast.Name) and part.id in handed]


def _loop_left(forward: Call, backward: Call) -> ast.For | ast.comprehension | None:
    """The one loop that ``forward`` stands in and ``backward``, which comes behind it, does not."""
    here, there = forward.place, backward.place
    loop = here.loops[-1] if here.loops else None
    is_behind = (here.walk, here.stack, here.loops[:-1]) == (there.walk, there.stack, there.loops)
    if not isinstance(loop, ast.For | ast.comprehension) or not is_behind or backward.order < forward.order:
        return None
    return loop


def _sums_up(run: Run, loop: ast.For | ast.comprehension, backward: Call) -> bool:
    """Whether what ``backward`` gets keeps, in ``loop``, what it had: `total += loss`, `losses.append(loss)`."""
    if isinstance(loop, ast.comprehension):
        return not any(isinstance(node, ast.Subscript) for node in all_nodes(backward.node))
    return _keeps_for(loop, names_in(backward.node), body_around(run, backward))


def _loop_of_helper(forward: Call) -> ast.For | None:
    """The only loop around ``forward`` in its function."""
    loops = forward.place.loops
    return loops[0] if len(loops) == 1 and isinstance(loops[0], ast.For) else None


def _gives_sum(run: Run, loop: ast.For, forward: Call) -> bool:
    """Whether the function around ``forward`` returns, behind ``loop`` alone, what that sums up."""
    body = body_around(run, forward)
    returns = [node for node in all_nodes(body) if isinstance(node, ast.Return)]
    return len(returns) == 1 and not is_inside(returns[0], loop) and _keeps_for(loop, names_in(returns[0]), body)


def _keeps_for(loop: ast.For, asked: frozenset[str], body: ast.AST) -> bool:
    """Whether ``loop`` adds to one of the names ``asked`` for, or to what ``body`` makes one of them of."""
    wanted = asked
    for node in all_nodes(body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in asked:
                wanted = wanted | names_in(value)
    return any(name in wanted for statement in loop.body for node in all_nodes(statement) for name in _kept(node))


def _kept(node: ast.AST) -> Iterator[str]:
    """The variable to which ``node`` adds something."""
    match node:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(op=ast.Add(), left=left, right=right)):
            yield from (it.id for it in (left, right) if isinstance(it, ast.Name) and it.id == name)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
            yield name
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
            yield name


def _has_several(run: Run, loop: ast.For | ast.comprehension, forward: Call) -> bool:
    """Whether ``loop`` certainly goes through several texts, the names of adapters."""
    body = body_around(run, forward)
    written = WrittenTexts(run.program.tree_with(body), body)
    return len({it.text for it in written.texts(uncounted(loop.iter), {})}) > 1
