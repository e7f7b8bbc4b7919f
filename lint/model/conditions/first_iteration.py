"""What the index of a loop decides in its first iteration: `if i % 2 == 0` holds there, `if i >= 2` does not."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING

from ..regions.free_variables import names_bound_by
from .guards import own_guards
from .loop_counters import counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...facts.values import Place

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
    indices = {name for loop in place.loops for name, is_zero in counters(loop).items() if is_zero}
    return all(_is_taken(test, taken, indices) for test, taken in _conditions_of_iterations(place))


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


def _is_taken(test: ast.AST, taken: bool, indices: set[str]) -> bool:
    value = _value(test, indices)
    return value is not None and bool(value) is taken


def _value(node: ast.AST, indices: set[str]) -> int | None:
    """What an expression of ``indices``, each 0, and numbers gives; None when something else decides it."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return 0 if name in indices else None
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
