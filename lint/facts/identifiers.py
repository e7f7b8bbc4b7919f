"""Which names and attributes an expression or a body speaks of."""

from __future__ import annotations

import ast

from .nodes import all_nodes


def names_in(node: ast.AST) -> frozenset[str]:
    """The variables that stand in ``node``, read or bound."""
    return frozenset(part.id for part in all_nodes(node) if isinstance(part, ast.Name))


def attributes_in(node: ast.AST) -> frozenset[str]:
    """The last names of the attributes that stand in ``node``: `weight` for `self.linear.weight`."""
    return frozenset(part.attr for part in all_nodes(node) if isinstance(part, ast.Attribute))


def own_attributes(node: ast.AST, context: type[ast.expr_context]) -> frozenset[str]:
    """The attributes of the object itself, `self.layer`, that ``node`` reads (`ast.Load`) or sets (`ast.Store`)."""
    return frozenset(
        f"self.{part.attr}"
        for part in all_nodes(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, context) and _is_self(part.value)
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
