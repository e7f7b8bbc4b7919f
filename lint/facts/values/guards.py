"""Conditions that hold where a statement stands or a value is bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..exclusion import contradict

if TYPE_CHECKING:
    import ast

    from .plain import Value


class Guard(NamedTuple):
    """A condition that holds: ``test`` is true, or false when ``taken`` is False."""

    test: ast.AST
    value: Value
    taken: bool
    #: The program raises or exits otherwise: every run that goes on is under it.
    asserted: bool = False

    def contradicts(self, other: Guard) -> bool:
        """Whether both cannot hold."""
        return contradict(self.test, self.taken, other.test, other.taken)
