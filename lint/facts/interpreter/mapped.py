"""`map(Block, widths)` as the comprehension that it stands for: `(Block(width) for width in widths)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..origin import stands_for
from ..values import Ref

if TYPE_CHECKING:
    from ..walk import Walk

#: A comprehension is kept on the call that it was made of: nodes are told apart by identity.
_FIELD = "_ckpt_lint_each"


def as_comprehension(walk: Walk, node: ast.Call) -> ast.GeneratorExp | None:
    """The comprehension that ``node`` stands for, the same one each time; None where it is no call of `map`."""
    match node:
        case ast.Call(func=ast.Name(id="map") as function, args=[called, *passed], keywords=[]) if passed:
            is_builtin = isinstance(found := walk.scope.look_up(function.id), Ref) and found.name == "builtins.map"
            if not is_builtin or any(isinstance(argument, ast.Starred) for argument in node.args):
                return None
            made: ast.GeneratorExp | None = getattr(node, _FIELD, None)
            if made is None:
                made = _comprehension(node, called, passed)
                setattr(node, _FIELD, made)
            return made
    return None


def _comprehension(node: ast.Call, called: ast.expr, passed: list[ast.expr]) -> ast.GeneratorExp:
    names = [f"<{position}>" for position in range(len(passed))]
    targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
    given: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
    element = ast.Call(called, given, [])
    several = ast.Call(ast.Name("zip", ast.Load()), passed, [])
    target, together = (targets[0], passed[0]) if len(passed) == 1 else (ast.Tuple(targets, ast.Store()), several)
    made = ast.GeneratorExp(element, [ast.comprehension(target, together, [], 0)])
    for part in (made, element, several, several.func, target, *targets, *given):
        stands_for(part, node)
    return made
