"""`map`, and `filter(None, ...)`, as the comprehensions that they stand for: `(Block(width) for width in widths)`."""

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
    """The comprehension that ``node`` stands for, the same one each time; None for other calls."""
    match node:
        case ast.Call(func=ast.Name(id="map" | "filter" as name), args=[called, *passed], keywords=[]) if passed:
            found = walk.scope.look_up(name)
            is_builtin = isinstance(found, Ref) and found.name == f"builtins.{name}"
            if not is_builtin or any(isinstance(argument, ast.Starred) for argument in node.args):
                return None
            if name == "filter" and not (isinstance(called, ast.Constant) and called.value is None):
                return None
            made: ast.GeneratorExp | None = getattr(node, _FIELD, None)
            if made is None:
                made = _mapped(node, called, passed) if name == "map" else _without_gaps(node, passed[0])
                setattr(node, _FIELD, made)
            return made
    return None


def _mapped(node: ast.Call, called: ast.expr, passed: list[ast.expr]) -> ast.GeneratorExp:
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


def _without_gaps(node: ast.Call, passed: ast.expr) -> ast.GeneratorExp:
    target, element, tested = ast.Name("<0>", ast.Store()), ast.Name("<0>", ast.Load()), ast.Name("<0>", ast.Load())
    made = ast.GeneratorExp(element, [ast.comprehension(target, passed, [tested], 0)])
    for part in (made, target, element, tested):
        stands_for(part, node)
    return made
