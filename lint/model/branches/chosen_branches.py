"""The condition where the ways to a checkpointed and a plain call part, and the statements of its branches."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.surroundings import holders
from ..conditions.older_versions import asks_for_version
from .branches import branches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...facts.values import Call


class Choice(NamedTuple):
    """A condition between the two calls, and its branches."""

    test: ast.expr
    checkpointed: Sequence[ast.stmt]
    plain: Sequence[ast.stmt]
    #: What each branch does behind a loop that the calls are in.
    behind: tuple[Sequence[ast.stmt], Sequence[ast.stmt]] = ((), ())


def choice_between(checkpointed: Call, plain: Call) -> Choice | None:
    """The condition where the ways to the two calls part."""
    function = checkpointed.place.function.node if checkpointed.place.function is not None else None
    if function is None:
        return None
    mine, others = ([*reversed(holders(call.node, function)), call.node] for call in (checkpointed, plain))
    apart = next((at for at, (here, there) in enumerate(zip(mine, others, strict=False)) if here is not there), 0)
    # The last one that is around both; or the statement of one of them, when it leaves the function.
    for node in (*mine[:apart][-1:], mine[apart], others[apart]):
        if isinstance(node, ast.IfExp):
            return _of_expressions(node, mine[apart], others[apart])
        if isinstance(node, ast.If):
            body, other = branches(node, function)
            if _is_in(body, mine) and _is_in(other, others):
                return _in_loops(Choice(node.test, body, other), mine, others)
            if _is_in(body, others) and _is_in(other, mine):
                return _in_loops(Choice(node.test, other, body), mine, others)
    return None


def _of_expressions(node: ast.IfExp, mine: ast.AST, other: ast.AST) -> Choice | None:
    """`checkpoint(block, x) if flag else block(x)`, its values as results of a function."""
    for here, there in ((node.body, node.orelse), (node.orelse, node.body)):
        if here is mine and there is other:
            return Choice(node.test, [ast.Return(here)], [ast.Return(there)])
    return None


def _in_loops(choice: Choice, mine: list[ast.AST], others: list[ast.AST]) -> Choice:
    """The choice between the bodies of two loops over the same, where each branch is such a loop."""
    checkpointed, plain = _past_versions(choice.checkpointed, mine), _past_versions(choice.plain, others)
    behind: tuple[Sequence[ast.stmt], Sequence[ast.stmt]] = ((), ())
    match _statement_on(checkpointed, mine), _statement_on(plain, others):
        case ast.For() as here, ast.For() as there if _heads(here) == _heads(there):
            behind = checkpointed[checkpointed.index(here) + 1 :], plain[plain.index(there) + 1 :]
            checkpointed, plain = _past_versions(here.body, mine), _past_versions(there.body, others)
    return Choice(choice.test, checkpointed, plain, behind)


def _heads(loop: ast.For) -> tuple[str, str]:
    return ast.dump(loop.target), ast.dump(loop.iter)


def _past_versions(body: Sequence[ast.stmt], way: list[ast.AST]) -> Sequence[ast.stmt]:
    """The statements of ``body``, conditions for versions on the ``way`` to a call replaced by the branch it takes."""
    statement = _statement_on(body, way)
    while isinstance(statement, ast.If) and asks_for_version(statement.test):
        taken = statement.body if _is_in(statement.body, way) else statement.orelse
        at = body.index(statement)
        body = [*body[:at], *taken, *body[at + 1 :]]
        statement = _statement_on(body, way)
    return body


def _statement_on(body: Sequence[ast.stmt], way: list[ast.AST]) -> ast.stmt | None:
    return next((statement for statement in body if statement in way), None)


def _is_in(body: Sequence[ast.stmt], way: list[ast.AST]) -> bool:
    """Whether the ``way`` down to a node leads through one of the statements of ``body``."""
    return any(node in body for node in way if isinstance(node, ast.stmt))
