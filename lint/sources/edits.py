"""Edits of text: several replacements at once, line ends kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lines import line_starts, newline_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Edit, Span


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with ``edits`` applied; they must not overlap. New lines get the line end the text uses."""
    starts = line_starts(text)
    newline = newline_of(text)
    pieces: list[str] = []
    position = 0
    for edit in sorted(set(edits), key=lambda edit: edit.span):
        begin, end = offsets(text, starts, edit.span)
        content = edit.content.replace("\r\n", "\n")
        pieces += [text[position:begin], content.replace("\n", newline) if newline != "\n" else content]
        position = end
    return "".join([*pieces, text[position:]])


def offsets(text: str, starts: list[int], span: Span) -> tuple[int, int]:
    """The character offsets of ``span``; places outside the text are moved to its end."""

    def offset(line: int, column: int) -> int:
        return min(starts[line - 1] + column - 1, len(text)) if line <= len(starts) else len(text)

    return offset(span.line, span.column), offset(span.end_line, span.end_column)
