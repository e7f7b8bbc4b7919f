"""Constructors of the program that give the base class all that they get."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .nodes import all_nodes
from .parameters import positional_names
from .straight import is_docstring

if TYPE_CHECKING:
    from .values import FunctionNode


def hands_all_on(node: FunctionNode) -> bool:
    """Whether a constructor begins with `super().__init__(*args, **kwargs)` and does nothing else with these."""
    rest, keywords = node.args.vararg, node.args.kwarg
    if rest is None or keywords is None or len(positional_names(node)) != 1 or not isinstance(node.body, list):
        return False
    first = next((statement for statement in node.body if not is_docstring(statement)), None)
    if first is None or ast.unparse(first) != f"super().__init__(*{rest.arg}, **{keywords.arg})":
        return False
    read = [part.id for part in all_nodes(node) if isinstance(part, ast.Name)]
    return read.count(rest.arg) == read.count(keywords.arg) == 1
