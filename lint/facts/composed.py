"""What a condition is that `not`, `and` and `or` put together, by what its parts are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def composed(test: ast.AST, ask: Callable[[ast.AST], bool | None]) -> bool | None:
    """What ``test`` is, where ``ask`` says what each part of it is; None where a part decides that it leaves open."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            answer = composed(operand, ask)
            return None if answer is None else not answer
        case ast.BoolOp(op=op, values=values):
            stops = isinstance(op, ast.Or)
            answers = {composed(value, ask) for value in values}
            return stops if stops in answers else (None if None in answers else not stops)
    return ask(test)
