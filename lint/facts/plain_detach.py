"""Spellings of `x.detach()` where a checkpoint gets or gives the tensor: `x.data`, `torch.tensor(x)`, through numpy."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .origin import stands_for

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What a text has that may say so.
DETACHES = re.compile(r"\.data\b|\.detach_\(|torch\.(?:detach|tensor|as_tensor|from_numpy)\(")
_COPIES = ("tensor", "as_tensor", "from_numpy")
#: What stands between a tensor and numpy.
_MOVES = frozenset(("numpy", "tolist", "cpu", "detach", "float"))


def detach_plainly(nodes: Iterable[ast.AST]) -> None:
    """Change what checkpoints among ``nodes`` get, and what is stored of their results, in place."""
    for node in nodes:
        match node:
            case ast.Call(func=function, args=[_, *_]) if _is_checkpoint(function):
                node.args[1:] = [_detached(given) or _copied(given) or given for given in node.args[1:]]
            case ast.Assign(value=value):
                node.value = _detached(value) or value


def replaced_by_itself(statement: ast.stmt) -> ast.Assign | None:
    """`h.detach_()` as `h = h.detach()`; None for other statements."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name) as held, attr="detach_"), args=[])):
            target = ast.Name(name, ast.Store())
            made = ast.Assign([target], _detach(held, held))
            stands_for(target, held)
            stands_for(made, statement)
            return made
    return None


def _is_checkpoint(function: ast.expr) -> bool:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return "checkpoint" in name
    return False


def _detached(node: ast.expr) -> ast.Call | None:
    """``node`` as `x.detach()`, where ``x`` is a variable or what a checkpoint gives; None where it is none."""
    match node:
        case ast.Attribute(value=inner, attr="data") if _is_tensor(inner):
            return _detach(inner, node)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="detach"), args=[inner]) if _is_tensor(inner):
            return _detach(inner, node)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), args=[inner]) if name in _COPIES:
            moved = _without_moves(inner)
            is_copy = moved is not inner or isinstance(inner, ast.Call)
            return _detach(moved, node) if is_copy and _is_tensor(moved) else None
    return None


def _copied(node: ast.expr) -> ast.Call | None:
    """The same for `torch.tensor(x)`: what a checkpoint gets of a variable is no list."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="tensor"), args=[ast.Name() as inner]):
            return _detach(inner, node)
    return None


def _without_moves(node: ast.expr) -> ast.expr:
    """The tensor of `x.detach().cpu().numpy()`."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _MOVES
        and not node.args
    ):
        node = node.func.value
    return node


def _is_tensor(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Call) and _is_checkpoint(node.func))


def _detach(tensor: ast.expr, node: ast.expr) -> ast.Call:
    method = ast.Attribute(tensor, "detach", ast.Load())
    made = ast.Call(method, [], [])
    stands_for(method, node)
    stands_for(made, node)
    return made
