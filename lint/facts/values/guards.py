"""Conditions that hold where a statement stands or a value is bound."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ..exclusion import contradict

if TYPE_CHECKING:
    from .plain import Value


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
