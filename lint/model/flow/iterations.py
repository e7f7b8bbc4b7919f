"""What happens in one iteration of a loop, and what another iteration changes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, is_inside
from ..conditions.loop_counters import counters
from ..regions.free_variables import names_bound_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...facts.values import Guard, Loop, Place
    from ..events import Event
    from ..run import Run


def bound_each_iteration(place: Place) -> frozenset[str]:
    """The names that the loops around ``place`` bind anew in each iteration."""
    return frozenset[str]().union(*map(names_bound_by, place.loops))


def changes_by_iteration(expression: ast.expr, place: Place) -> bool:
    """Whether ``expression`` at ``place`` reads a name that another iteration of a loop binds anew."""
    return bool(place.loops) and not names_in(expression).isdisjoint(bound_each_iteration(place))


def happens_in_iteration(run: Run, event: Event, loop: Loop) -> bool:
    """Whether ``event`` happens in each iteration of ``loop``: there, or in a function that is called there."""
    if loop in event.place.loops:
        return True
    return any(loop in place.loops for call in event.place.stack for place in run.places(call))


def goes_through_all(loop: Loop) -> bool:
    """Whether ``loop`` surely goes through all of something: `net.blocks`, `enumerate(net.blocks)`, not a slice."""
    if isinstance(loop, ast.comprehension):
        return not loop.ifs and _is_whole(loop.iter)
    leaves = any(isinstance(part, ast.Break) for part in all_nodes(loop))
    return isinstance(loop, ast.For | ast.AsyncFor) and not leaves and _is_whole(loop.iter)


def _is_whole(iterated: ast.expr) -> bool:
    match iterated:
        case ast.Attribute():
            return True
        case ast.Call(func=ast.Name(id="enumerate" | "list" | "reversed" | "tuple"), args=[inner, *_]):
            return _is_whole(inner)
        case ast.Call(func=ast.Name(id="range"), args=[ast.Call(func=ast.Name(id="len"), args=[inner])]):
            return _is_whole(inner)
        case ast.Call(func=ast.Attribute(attr="modules" | "children" | "named_children" | "named_modules"), args=[]):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr="items" | "values"), args=[]):
            return _is_whole(inner)
    return False


def is_last_iteration(loop: Loop, node: ast.AST) -> bool:
    """Whether ``loop`` is left after the statement with ``node``, so that no other iteration binds its names."""
    return not isinstance(loop, ast.comprehension) and _leaves(loop.body, node, own=True)


def is_in_one_iteration(place: Place, loop: Loop) -> bool:
    """Whether a condition in ``loop`` lets one iteration alone come to ``place``, perhaps the last: `i == n - 1`.

    The first one, `i == 0`, is not the last.
    """
    if not isinstance(loop, ast.For):
        return False
    guards = [guard.plain for guard in place.guards if is_inside(guard.test, loop)]
    return any(_chooses_one(part, taken, loop) for test, taken in guards for part in _all_of(test, taken))


def leaves_out_last(guard: Guard, loop: Loop) -> bool:
    """Whether every iteration of ``loop`` but the last one comes to what stands under ``guard``: `i < n - 1`."""
    if not isinstance(loop, ast.For) or not is_inside(guard.test, loop):
        return False
    test, taken = guard.plain
    return _asks_for_end(test, loop) and _chooses_one(test, not taken, loop)


def _asks_for_end(test: ast.AST, loop: ast.For) -> bool:
    """Whether ``test`` compares with how many iterations there are: `len(layers)`, or the end of a `range`."""
    given = loop.iter.args if isinstance(loop.iter, ast.Call) and loop.iter.args else [loop.iter]
    end = given[1] if len(given) > 1 else given[0]
    asked = test.comparators if isinstance(test, ast.Compare) else []
    return any(
        (isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "len")
        or (isinstance(part, ast.expr) and ast.unparse(part) == ast.unparse(end))
        for side in asked
        for part in ast.walk(side)
    )


def _all_of(test: ast.AST, taken: bool) -> Sequence[ast.AST]:
    """The parts of ``test`` that all come out as ``taken``."""
    joined = ast.And if taken else ast.Or
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, joined) else [test]


def _chooses_one(test: ast.AST, taken: bool, loop: ast.For) -> bool:
    match test:
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Subscript()]) if taken:
            return not names_in(left).isdisjoint(names_in(loop.target))  # `block is self.blocks[-1]`
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as operator], comparators=[right]):
            counts = not counters(loop).keys().isdisjoint(names_in(left) | names_in(right))
            is_first = any(isinstance(side, ast.Constant) and side.value == 0 for side in (left, right))
            return counts and not is_first and isinstance(operator, ast.Eq) is taken
        case ast.Compare(left=left, ops=[ast.Lt() | ast.GtE() as operator], comparators=[right]):
            counts = not counters(loop).keys().isdisjoint(names_in(left))
            is_last = ast.unparse(left).endswith(f" + {_step(loop)}") or ast.unparse(right).endswith(" - 1")
            return counts and (is_last or _is_last_number(right, loop)) and isinstance(operator, ast.GtE) is taken
        case ast.Name(name):
            asked = [part.value for part in all_nodes(loop) if isinstance(part, ast.Assign) and _binds(part, name)]
            parts = _all_of(asked[0], taken) if len(asked) == 1 else ()
            return any(_chooses_one(part, taken, loop) for part in parts if isinstance(part, ast.Compare))
    return False


def _is_last_number(asked: ast.expr, loop: ast.For) -> bool:
    """Whether ``asked`` is the last number of a `range` that is written out: 2 for `range(3)`."""
    match loop.iter:
        case ast.Call(func=ast.Name("range"), args=[ast.Constant(int(end))] | [_, ast.Constant(int(end))]):
            return isinstance(asked, ast.Constant) and asked.value == end - 1
    return False


def _step(loop: ast.For) -> str:
    """What is added to the counter of ``loop`` from iteration to iteration, as it is written."""
    match loop.iter:
        case ast.Call(func=ast.Name("range"), args=[_, _, step]):
            return ast.unparse(step)
    return "1"


def _binds(statement: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)


def _leaves(body: list[ast.stmt], node: ast.AST, own: bool) -> bool:
    """Whether ``body`` holds ``node`` and ends the loop behind it; a `break` does only where ``own`` says so."""
    ends = (ast.Return, ast.Raise, ast.Break) if own else (ast.Return, ast.Raise)
    for index, statement in enumerate(body):
        if any(part is node for part in all_nodes(statement)):
            inside = own and not isinstance(statement, ast.For | ast.AsyncFor | ast.While)
            return any(isinstance(later, ends) for later in body[index:]) or any(
                _leaves(inner, node, inside) for inner in blocks_of(statement)
            )
    return False


def blocks_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of statements directly in ``statement``."""
    parts = (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    for part in parts:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(part, field, None)
            if isinstance(block, list):
                yield block
