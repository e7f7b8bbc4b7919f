"""Where something is in a text, as findings say it and as SARIF, GitLab and the language server pass it on.

Lines and columns count from 1, columns in characters, and lines end as Python ends them. Python's parser counts bytes
of UTF-8 (``of_bytes``), the readers of YAML, JSON and the shell count characters from the start (``position``).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from ..finding import Span
from .lines import line_starts, split_lines


class Locator:
    """The places in one text: of a program, of a notebook or one of its cells, of a configuration."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        """The lines, their ends left out."""
        return split_lines(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        return line_starts(self.text)

    def line(self, offset: int) -> int:
        """The line of the character at ``offset``."""
        return bisect_right(self._starts, offset)

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the column of the character at ``offset``."""
        line = self.line(offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, begin: int, end: int) -> Span:
        """The range of the characters from ``begin`` up to ``end``, which is not part of it."""
        return Span(*self.position(begin), *self.position(end))

    def offset(self, line: int, column: int) -> int:
        """Where a line and a column are; a place outside of the text is its end."""
        return min(self._starts[line - 1] + column - 1, len(self.text)) if line <= len(self._starts) else len(self.text)

    def offsets(self, span: Span) -> tuple[int, int]:
        """Where a range begins and ends: ``text[begin:end]`` is what it covers."""
        return self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)

    def around(self, offset: int) -> tuple[int, int]:
        """Where the line of the character at ``offset`` begins and ends, its line end left out."""
        line = self.line(offset)
        start = self._starts[line - 1]
        return start, start + len(self.lines[line - 1])

    def of_bytes(self, line: int, offset: int) -> tuple[int, int]:
        """The line and the column of a place that Python's parser gives: ``offset`` counts bytes of UTF-8, from 0."""
        text = self.lines[line - 1]
        return line, (offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))) + 1
