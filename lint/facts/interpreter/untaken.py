"""The calls on the side of a condition that the settings of a program never take: what they would be, and not run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from ..nodes import all_nodes
from ..values import Call, Guard, Unknown
from ..walk import Untaken
from .calling import arguments_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..values import Value
    from ..walk import Walk

    _Condition: TypeAlias = ast.If | ast.IfExp

#: What evaluating an expression must not do here.
_ACTS = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda, ast.comprehension)
#: How many calls of one side are looked at.
_MOST = 16


def leave_out(walk: Walk, node: _Condition, value: Value, taken: bool) -> None:
    """Note the calls of ``node``, an `if` that is decided, on the side that is not ``taken``."""
    if not isinstance(walk.scope.node, ast.FunctionDef):
        return
    side = node.orelse if taken else node.body
    parts: Sequence[ast.AST] = side if isinstance(side, list) else [side]
    calls = [found for part in parts for found in all_nodes(part) if isinstance(found, ast.Call)]
    guards = (*walk.place.guards, Guard(node.test, value, not taken))
    place = walk.place._replace(guards=guards)
    for call in calls[:_MOST]:
        if isinstance(call.func, ast.Name | ast.Attribute):
            given = arguments_of(walk, call, lambda part: _seen(walk, part))
            found = Call(call, _seen(walk, call.func), place, walk.program.order, given)
            walk.program.untaken.append(Untaken(found, node, Guard(node.test, value, taken)))


def _seen(walk: Walk, node: ast.expr) -> Value:
    """What ``node`` is, where looking does nothing."""
    if any(isinstance(part, _ACTS) for part in all_nodes(node)):
        return Unknown(node)
    return walk.evaluate(node)
