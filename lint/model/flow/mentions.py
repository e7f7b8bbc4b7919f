"""Whether a program says anything at all about a setting: the last resort against guessing."""

from __future__ import annotations

import ast

from ...facts.nodes import all_nodes


def mentions(tree: ast.AST, name: str) -> bool:
    """Whether ``name`` stands in the program as a keyword, an attribute, a variable or a string of its own."""
    return any(name in _names(node) for node in all_nodes(tree))


def _names(node: ast.AST) -> tuple[object, ...]:
    match node:
        case ast.keyword(arg=name) | ast.Attribute(attr=name) | ast.Constant(value=name) | ast.Name(id=name):
            return (name,)
    return ()
