"""What the index of a loop decides in its first iteration: `if i % 2 == 0` holds there, `if i >= 2` does not."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import is_inside
from ..regions.free_variables import names_bound_by
from .guards import own_guards
from .loop_counters import counters, first_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...facts.values import Guard, Loop, Place

_OPERATIONS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def depends_on_iteration(place: Place) -> bool:
    """Whether a condition around ``place`` reads what a loop around it binds: only some iterations come there."""
    return any(True for _ in _conditions_of_iterations(place))


def runs_in_first_iteration(place: Place) -> bool:
    """Whether the loops around ``place`` certainly come there in their first iteration, other conditions left out."""
    indices = {name: 0 for loop in place.loops for name, is_zero in counters(loop).items() if is_zero}
    return all(_is_taken(test, taken, indices) for test, taken in _conditions_of_iterations(place))


def leaves_out_first(guard: Guard, loop: Loop, around: ast.AST) -> bool:
    """Whether every iteration of ``loop`` but the first one comes to what stands under ``guard``: `if i:`, `i > 0`.

    ``around`` is the function that has the loop.
    """
    if not is_inside(guard.test, loop):
        return False
    test, taken = guard.plain
    match test:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as compares], comparators=[ast.Subscript() as first]):
            is_first = isinstance(loop, ast.For) and _is_bound_by(loop, left) and _is_first_of(first, loop)
            return is_first and isinstance(compares, ast.IsNot) is taken
        case ast.Name() | ast.Compare(left=ast.Name() | ast.Constant(), comparators=[ast.Name() | ast.Constant()]):
            counts = first_values(loop, around, test)
            ways = [{name: values[index] for name, values in counts.items()} for index in range(3)]
            answers = [_value(test, way) for way in ways]
            return None not in answers and [*map(bool, answers)] == [not taken, taken, taken]
    return False


def _is_bound_by(loop: ast.For, expression: ast.expr) -> bool:
    return not names_in(expression).isdisjoint(names_in(loop.target))


def _is_first_of(node: ast.expr, loop: ast.For) -> bool:
    """Whether ``node`` is `layers[0]` of the `layers` that ``loop`` goes through."""
    match node:
        case ast.Subscript(value=held, slice=ast.Constant(value=0)):
            iterated = loop.iter.args[0] if isinstance(loop.iter, ast.Call) and loop.iter.args else loop.iter
            return ast.unparse(held) == ast.unparse(iterated)
    return False


def _conditions_of_iterations(place: Place) -> Iterator[tuple[ast.AST, bool]]:
    bound = frozenset[str]().union(*map(names_bound_by, place.loops))
    for guard in own_guards(place):
        for test in _conjuncts(guard.test) if guard.taken else (guard.test,):
            if any(isinstance(node, ast.Name) and node.id in bound for node in ast.walk(test)):
                yield test, guard.taken


def _conjuncts(test: ast.AST) -> Iterator[ast.AST]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for value in test.values:
            yield from _conjuncts(value)
    else:
        yield test


def _is_taken(test: ast.AST, taken: bool, indices: dict[str, int]) -> bool:
    value = _value(test, indices)
    return value is not None and bool(value) is taken


def _value(node: ast.AST, indices: dict[str, int]) -> int | None:
    """What an expression of ``indices`` and numbers gives; None when something else decides it."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return indices.get(name)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            value = _value(inner, indices)
            return None if value is None else not value
        case ast.BinOp(left=left, op=ast.Mod() | ast.FloorDiv()) if _value(left, indices) == 0:
            return 0  # Whatever it is divided by.
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return _applied(op, _value(left, indices), _value(right, indices))
    return None


def _applied(op: ast.AST, left: int | None, right: int | None) -> int | None:
    operation = _OPERATIONS.get(type(op))
    return None if operation is None or left is None or right is None else operation(left, right)
