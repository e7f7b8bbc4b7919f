"""Conditions that hold where a statement stands or a value is bound."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..exclusion import contradict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    from .plain import Value

    #: Conditions, and whether they are true.
    Said: TypeAlias = tuple[tuple[ast.AST, bool], ...]


#: More alternatives than this are not kept.
_MOST = 8


class Guard(NamedTuple):
    """A condition that holds: ``test`` is true, or false when ``taken`` is False."""

    test: ast.AST
    value: Value
    taken: bool
    #: The program raises or exits otherwise: every run that goes on is under it.
    asserted: bool = False

    @property
    def plain(self) -> tuple[ast.AST, bool]:
        """The condition without the `not` before it, and whether that holds: false `not x` is true `x`."""
        test, taken = self.test, self.taken
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, taken = test.operand, not taken
        return test, taken

    def contradicts(self, other: Guard) -> bool:
        """Whether both cannot hold."""
        return contradict(self.test, self.taken, other.test, other.taken)


def said(guards: Iterable[Guard]) -> Said:
    """What ``guards`` say."""
    return tuple((guard.test, guard.taken) for guard in guards)


@lru_cache(maxsize=256)
def either_holds(left: Said, right: Said) -> ast.AST:
    """`left or right`: the same node each time, so that the same condition is known for one."""
    ways: list[ast.expr] = []
    for parts in (left, right):
        tests = [test if taken else _negated(test) for test, taken in parts if isinstance(test, ast.expr)]
        if len(tests) < len(parts):
            return left[0][0]  # What a `case` or an `except` says is no expression.
        ways += _flat(tests[0]) if len(tests) == 1 else [_at(ast.BoolOp(ast.And(), tests), tests[0])]
    ways = [*{_text(way): way for way in ways}.values()]
    if len(ways) == 1:
        return ways[0]
    return left[0][0] if len(ways) > _MOST else _at(ast.BoolOp(ast.Or(), ways), left[0][0])


@lru_cache(maxsize=1024)
def _negated(test: ast.expr) -> ast.expr:
    return _at(ast.UnaryOp(ast.Not(), test), test)


def _at(made: ast.expr, node: ast.AST) -> ast.expr:
    """``made``, where ``node`` stands."""
    return ast.copy_location(made, node)


@lru_cache(maxsize=1024)
def _text(test: ast.expr) -> str:
    return ast.dump(test)


def _flat(test: ast.expr) -> Iterator[ast.expr]:
    """The alternatives of an `or`."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=values):
            yield from values
        case _:
            yield test
