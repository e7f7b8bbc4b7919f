"""Conditions that pick every k-th iteration of a loop, where k is a square root."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.exclusion import parts_that_hold
from ...facts.nodes import all_nodes, is_inside
from ...facts.origin import origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Guard


def square_root(tree: ast.Module, guard: Guard) -> ast.Assign | None:
    """Where the `k` of ``guard`` is computed from a square root, when one `i` in `k` is taken; None for others.

    Args:
        tree: The file.
        guard: A condition in it: `i % k == 0`, alone or beside others.
    """
    for part, holds in parts_that_hold(guard.test, guard.taken):
        rest, is_one_in_k = part, not holds
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq | ast.NotEq):
            rest, is_one_in_k = part.left, holds == isinstance(part.ops[0], ast.Eq)
        match rest:
            case ast.BinOp(op=ast.Mod(), right=ast.Name() | ast.Attribute() as k) if is_one_in_k:
                found = [node for node in _assigned(tree, k) if origin(k) is None]
                if len(found) == 1 and any(_is_root(inner) for inner in all_nodes(found[0].value)):
                    return found[0]
    return None


def _assigned(tree: ast.Module, k: ast.Name | ast.Attribute) -> Iterator[ast.Assign]:
    """The assignments to ``k`` in the function around it, in the class for an attribute; elsewhere in the file."""
    kinds = (ast.ClassDef,) if isinstance(k, ast.Attribute) else (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [node for node in ast.walk(tree) if isinstance(node, kinds) and is_inside(k, node)]
    wanted = ast.unparse(k)
    for node in ast.walk(around[-1] if around else tree):
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == wanted for target in node.targets):
            yield node


def _is_root(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in ("sqrt", "isqrt")
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
            return True
    return False
