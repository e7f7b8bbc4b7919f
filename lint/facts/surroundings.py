"""What is around a node of a syntax tree."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from .nodes import all_nodes, inner_nodes

if TYPE_CHECKING:
    import ast

_Parents: TypeAlias = "dict[ast.AST, ast.AST]"


@lru_cache(maxsize=256)
def parents_in(body: ast.AST) -> _Parents:
    """By each node below ``body``, the node right above it."""
    return {child: node for node in all_nodes(body) for child in inner_nodes(node)}


def holders(node: ast.AST, body: ast.AST) -> list[ast.AST]:
    """What is around ``node`` inside ``body``, innermost first; neither of the two is in it."""
    parents = parents_in(body)
    found = []
    while (node := parents.get(node, body)) is not body:
        found.append(node)
    return found
