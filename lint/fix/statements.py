"""Whole statements: inserted before another one, or removed without leaving an empty block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Edit, Span

if TYPE_CHECKING:
    import libcst as cst

    from .tree import Tree


def insert_before(tree: Tree, node: cst.CSTNode, text: str) -> list[Edit] | None:
    """A line ``text`` above the line on which ``node`` starts; None when something else starts that line."""
    span = tree.span(node)
    line = tree.lines[span.line - 1]
    indent = line[: span.column - 1]
    if indent.strip():
        return None
    # At the very start of the line, so that the line itself may be removed by the same fix.
    return [Edit(Span(span.line, 1, span.line, 1), f"{indent}{text}\n")]


def delete_statement(tree: Tree, node: cst.BaseSmallStatement) -> list[Edit] | None:
    """Without the statement: the whole line goes, or `pass` stays when the line is all its block has."""
    span = tree.span(node)
    first, last = tree.lines[span.line - 1], tree.lines[span.end_line - 1]
    rest = last[span.end_column - 1 :]
    if first[: span.column - 1].strip() or not (rest.strip() == "" or rest.lstrip().startswith("#")):
        return None
    if tree.is_only_statement(node):
        return [Edit(span, "pass")]
    if rest.strip():
        # The comment stays, on a line of its own.
        gap = len(rest) - len(rest.lstrip())
        return [Edit(span._replace(end_column=span.end_column + gap), "")]
    return [Edit(Span(span.line, 1, span.end_line + 1, 1), "")]
