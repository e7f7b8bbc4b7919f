"""Which loss a forward pass feeds, followed by name through statements, and through the program's own functions."""

from __future__ import annotations

import ast
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ...facts.nodes import returned_by
from ...facts.objects.classes import is_run_as_written
from ...facts.values import Function, Method
from .frames import ways_from_shared_function
from .gradient_steps import Position, carried, end_of, position, reads, steps_of
from .statements import body_around

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, FunctionNode, Value
    from ..history import History

_START: Position = (0, 0)


def feeds(run: History, source: Call, sink: Call) -> bool:
    """Whether what a call gives surely goes, through plain statements, into another call.

    Args:
        run: The history that both calls are of.
        source: The call that gives something; functions around it may return it.
        sink: The call that may get it; functions around it may have it as an argument.
    """
    ways = ways_from_shared_function(run, source, sink)
    if ways is None:
        return False
    cuts = _detaching(run)
    if not all(_is_returned(run, inner, cuts) for inner in ways.left[1:]):
        return False
    given: list[ast.expr] = [ways.right[-1].node]
    for inner, caller in pairwise(reversed(ways.right)):
        given = _handed_over(inner, caller, given, cuts)
    node, end = ways.left[0].node, position(ways.right[0].node)
    if any(_holds(value, node, cuts) for value in given):
        return True
    return _comes_from(body_around(run, ways.left[0]), node, reads(*given, cuts=cuts), end, cuts)


def _detaching(run: History) -> frozenset[ast.AST]:
    """The calls of the program's own functions whose results have no gradient, as `x.detach()` has none."""
    cut: dict[ast.AST, bool] = {}
    for call in run.program.calls:
        cut[call.node] = cut.get(call.node, True) and _detaches(call.func)
    return frozenset(node for node, is_cut in cut.items() if is_cut)


def _detaches(called: Value) -> bool:
    match called:
        case (Function() as function) | Method(function=function):
            return is_run_as_written(function) and _returns_detached(function.node)
    return False


@lru_cache(maxsize=1024)
def _returns_detached(function: FunctionNode) -> bool:
    """Whether gradients of what ``function`` returns go to nothing that it is given or reads."""
    values = returned_by(function)
    return bool(values) and not any(_sources(function, value) for value in values)


def _sources(function: FunctionNode, value: ast.expr) -> set[str]:
    """The names outside of ``function``'s own steps that gradients of ``value`` go to."""
    names = set(reads(value))
    for _ in _traced(function, names, _START, position(value)):
        pass
    return names


def _is_returned(run: History, call: Call, cuts: frozenset[ast.AST]) -> bool:
    """Whether the function that makes ``call`` gives what that gives to its caller, gradients included."""
    function, place = call.place.function, call.place
    if function is None or not is_run_as_written(function):
        return False
    found = [
        _returned(it.node)
        for it in run.program.returns.get(function.node, ())
        if (it.place.walk, it.place.stack) == (place.walk, place.stack) and not it.place.excludes(place)
    ]
    later = [value for value in found if end_of(value) > position(call.node)]
    return bool(later) and all(
        _holds(value, call.node, cuts)
        or _comes_from(function.node, call.node, reads(value, cuts=cuts), position(value), cuts)
        for value in later
    )


def _returned(node: ast.Return | ast.Lambda) -> ast.expr:
    value = node.body if isinstance(node, ast.Lambda) else node.value
    return ast.copy_location(ast.Constant(None), node) if value is None else value


def _holds(value: ast.AST, node: ast.AST, cuts: frozenset[ast.AST]) -> bool:
    return any(part is node for part in carried(value, cuts))


def _comes_from(
    body: ast.AST, source: ast.Call, wanted: frozenset[str], end: Position, cuts: frozenset[ast.AST]
) -> bool:
    """Whether ``source`` fills one of the names that are ``wanted`` at ``end``."""
    names = set(wanted)
    return any(_holds(value, source, cuts) for value in _traced(body, names, position(source), end, cuts))


def _traced(
    body: ast.AST, wanted: set[str], first: Position, last: Position, cuts: frozenset[ast.AST] = frozenset()
) -> Iterator[ast.expr]:
    """The expressions that fill ``wanted``, the last first; in the end it holds the names that were filled before."""
    for step in reversed(steps_of(body)):
        if step.start >= last or step.end < first or wanted.isdisjoint(step.filled):
            continue
        yield from step.values
        if step.replaces:
            wanted -= step.filled
        wanted |= reads(*step.values, cuts=cuts)


def _handed_over(inner: Call, caller: Call, values: list[ast.expr], cuts: frozenset[ast.AST]) -> list[ast.expr]:
    """The arguments of ``caller`` that ``values``, in ``inner`` of the function it called, come from."""
    function = inner.place.function
    if function is None:
        return []
    names = set(reads(*values, cuts=cuts))
    for _ in _traced(function.node, names, _START, position(inner.node), cuts):
        pass
    roots = {name.partition(".")[0] for name in names}
    return [value for name, value in _arguments(function.node, caller) if name in roots]


def _arguments(function: FunctionNode, call: Call) -> Iterator[tuple[str, ast.expr]]:
    """The expressions that ``call`` gives for the parameters of ``function``, as far as they are written out."""
    parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(call.func, Method):
        del parameters[:1]
    yield from zip(parameters, call.node.args, strict=False)
    yield from ((keyword.arg, keyword.value) for keyword in call.node.keywords if keyword.arg is not None)
