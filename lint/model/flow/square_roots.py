"""Names that hold a square root, and conditions that pick every k-th iteration of a loop."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.exclusion import parts_that_hold
from ...facts.nodes import all_nodes

if TYPE_CHECKING:
    from ...facts.values import Guard


def modulus(guard: Guard) -> str | None:
    """The `k` of a condition under which one `i` in `k` is taken: `i % k == 0`, also beside others."""
    for part, holds in parts_that_hold(guard.test, guard.taken):
        match part:
            case ast.Compare(left=rest, ops=[ast.Eq() | ast.NotEq() as op], comparators=[_]):
                is_one_in_k = holds == isinstance(op, ast.Eq)
            case _:
                rest, is_one_in_k = part, not holds
        match rest:
            case ast.BinOp(op=ast.Mod(), right=ast.Name(id=name) | ast.Attribute(attr=name)) if is_one_in_k:
                return name
    return None


def square_roots(tree: ast.Module) -> dict[str, ast.Assign]:
    """Names and attributes that are assigned from a square root."""
    found: dict[str, ast.Assign] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(_is_root(inner) for inner in all_nodes(node.value)):
            for target in node.targets:
                if isinstance(target, ast.Name | ast.Attribute):
                    found[target.id if isinstance(target, ast.Name) else target.attr] = node
    return found


def _is_root(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in ("sqrt", "isqrt")
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
            return True
    return False
