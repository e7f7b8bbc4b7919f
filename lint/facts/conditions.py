"""Which way a condition goes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .values import truth

if TYPE_CHECKING:
    from .values import Value
    from .walk import Walk


def decided(walk: Walk, test: ast.expr, value: Value) -> bool | None:
    """Whether ``test``, which evaluates to ``value``, surely holds; None when it may go either way.

    What a method reads of its own object is a switch: `self.checkpointing = False` in `__init__` is a default, and
    whoever wrote the branch for True has a way to set it.
    """
    known = truth(value)
    if known is None or getattr(walk.scope.node, "name", "") == "__init__":
        return known
    return None if any(map(_is_own_attribute, ast.walk(test))) else known


def _is_own_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
