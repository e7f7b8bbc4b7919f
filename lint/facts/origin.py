"""Which file a node stands in, when a run is read from more than one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .nodes import all_nodes

if TYPE_CHECKING:
    import ast

    from ..finding import Span

    _Placed = ast.expr | ast.stmt | ast.keyword

_FIELD = "_ckpt_lint_file"
_SETTING = "_ckpt_lint_setting"
_LINE = "_ckpt_lint_line"
_WRITTEN = "_ckpt_lint_written"


def mark(tree: ast.Module, filename: str) -> None:
    """Remember that the nodes of ``tree`` stand in ``filename``. The nodes of the checked file itself carry no mark."""
    for node in all_nodes(tree):
        setattr(node, _FIELD, filename)


def origin(node: ast.AST) -> str | None:
    """The file ``node`` stands in; None for the file that is checked."""
    return cast("str | None", getattr(node, _FIELD, None))


def stands_for(node: _Placed, written: _Placed) -> None:
    """Remember that ``node`` is not in the text, and that what says it there is ``written``."""
    setattr(node, _WRITTEN, written)
    node.lineno, node.col_offset = written.lineno, written.col_offset
    node.end_lineno, node.end_col_offset = written.end_lineno, written.end_col_offset
    if origin(written) is not None:
        setattr(node, _FIELD, origin(written))


def as_written(node: ast.AST) -> ast.AST:
    """What says in the text what ``node`` does: mostly itself."""
    return cast("ast.AST", getattr(node, _WRITTEN, node))


def mark_setting(node: ast.AST, filename: str, span: Span, line: str) -> None:
    """Put ``node``, which stands for a setting, where a configuration file has that.

    Args:
        node: The node, changed in place.
        filename: The configuration file.
        span: Place of the setting there.
        line: What the line says.
    """
    setattr(node, _FIELD, filename)
    setattr(node, _SETTING, span)
    setattr(node, _LINE, line)
    node.lineno, node.end_lineno = span.line, span.end_line  # type: ignore[attr-defined]
    node.col_offset, node.end_col_offset = span.column - 1, span.end_column - 1  # type: ignore[attr-defined]


def setting_span(node: ast.AST | None) -> Span | None:
    """Where a node of a configuration file stands; None for one of a program."""
    return cast("Span | None", getattr(node, _SETTING, None))


def setting_line(node: ast.AST) -> str | None:
    """What the line of a configuration file says that ``node`` stands on; None for one of a program."""
    return cast("str | None", getattr(node, _LINE, None))
