"""Which file a node stands in, when a run is read from more than one."""

from __future__ import annotations

import ast
from typing import cast

_FIELD = "_ckpt_lint_file"


def mark(tree: ast.Module, filename: str) -> None:
    """Remember that the nodes of ``tree`` stand in ``filename``. The nodes of the checked file itself carry no mark."""
    for node in ast.walk(tree):
        setattr(node, _FIELD, filename)


def origin(node: ast.AST) -> str | None:
    """The file ``node`` stands in; None for the file that is checked."""
    return cast("str | None", getattr(node, _FIELD, None))
