"""What every run of a function comes to in order, and the one value that it consists of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .values import FunctionNode


def straight(body: Iterable[ast.AST], *opened: type[ast.With] | type[ast.For]) -> Iterator[ast.AST]:
    """The statements in order, those of ``opened`` blocks and under a mere `finally` among them; others stay whole."""
    for statement in body:
        if isinstance(statement, opened):
            yield from straight(statement.body, *opened)
        elif isinstance(statement, ast.Try) and not statement.handlers:
            yield from straight((*statement.body, *statement.finalbody), *opened)
        else:
            yield statement


def only_value(function: FunctionNode) -> ast.expr | None:
    """The expression that is all a function gives: at once, by a variable, or under a context such as autocast."""
    return function.body if isinstance(function, ast.Lambda) else value_of(function.body)


def only_call(function: FunctionNode) -> ast.Call | None:
    """The call that is all that a function does."""
    value = only_value(function)
    return value if isinstance(value, ast.Call) else None


def value_of(body: Iterable[ast.stmt]) -> ast.expr | None:
    """The same for the statements of a function, or of a branch."""
    match _up_to_return(statement for statement in straight(body, ast.With) if not is_docstring(statement)):
        case [ast.Return(value=ast.expr() as value)]:
            return value
        case [ast.Assign(targets=[ast.Name(id=stored)], value=value), ast.Return(value=ast.Name(id=name))]:
            return value if stored == name else None
    return None


def _up_to_return(statements: Iterable[ast.AST]) -> list[ast.AST]:
    """What a `finally` adds behind it gives nothing."""
    found: list[ast.AST] = []
    for statement in statements:
        found.append(statement)
        if isinstance(statement, ast.Return):
            break
    return found


def is_docstring(statement: ast.AST) -> bool:
    """Whether ``statement`` is a text that nothing reads."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
