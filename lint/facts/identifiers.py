"""Which names and attributes an expression or a body speaks of."""

from __future__ import annotations

import ast
from typing import TypeGuard

from .nodes import all_nodes


def names_in(node: ast.AST) -> frozenset[str]:
    """The variables that stand in ``node``, read or bound."""
    return frozenset(part.id for part in all_nodes(node) if isinstance(part, ast.Name))


def attributes_in(node: ast.AST) -> frozenset[str]:
    """The last names of the attributes that stand in ``node``: `weight` for `self.linear.weight`."""
    return frozenset(part.attr for part in all_nodes(node) if isinstance(part, ast.Attribute))


def words_in(node: ast.AST) -> frozenset[str]:
    """The variables and the last names of attributes that stand in ``node``; `self` is none of them."""
    return names_in(node) - {"self"} | attributes_in(node)


def own_attributes(node: ast.AST, context: type[ast.expr_context]) -> frozenset[str]:
    """The attributes of the object itself, `self.layer`, that ``node`` reads (`ast.Load`) or sets (`ast.Store`)."""
    return frozenset(
        f"self.{part.attr}" for part in all_nodes(node) if is_own_attribute(part) and isinstance(part.ctx, context)
    )


def cells_in(node: ast.AST, context: type[ast.expr_context]) -> dict[str, str]:
    """The items under a constant, `index[0]`, that ``node`` reads or sets, with the variable of each."""
    return {
        ast.unparse(part): part.value.id
        for part in all_nodes(node)
        if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name)
        if isinstance(part.slice, ast.Constant) and isinstance(part.ctx, context)
    }


def is_own_attribute(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether ``node`` is `self.name`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def is_own_object(node: ast.expr) -> bool:
    """Whether ``node`` is the object or the class whose method this is: `self`, `cls`, `super()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def operands(node: ast.AST | None) -> frozenset[str]:
    """The variables that `left + right`, or another operation of two, works on as they are; none for anything else."""
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    return frozenset(part.id for part in parts if isinstance(part, ast.Name))
