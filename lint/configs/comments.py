"""Comments of YAML that silence findings: the same words as in Python."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ..source import line_starts, split_lines
from ..suppress import NOTHING, Suppressions, directives, may_suppress

if TYPE_CHECKING:
    from ..source import Source


def comments_of(source: Source) -> Suppressions:
    """The suppressions in a configuration; JSON has no comments, so it has none.

    A comment behind an entry covers its line, one on a line of its own the next entry.
    """
    if source.filename.endswith(".json") or not may_suppress(source.text):
        return NOTHING
    from .yaml_text import comments_in

    starts, lines = line_starts(source.text), split_lines(source.text)
    found = []
    for offset, text in comments_in(source.text):
        line = bisect_right(starts, offset)
        column = offset - starts[line - 1]
        own_line = not lines[line - 1][:column].strip()
        for suppression in directives(text, line, column + 1, own_line):
            if own_line and suppression.kind == "ignore":
                suppression = suppression._replace(first=_next_entry(lines, line), last=_next_entry(lines, line))
            found.append(suppression)
    return Suppressions(tuple(found), ())


def _next_entry(lines: list[str], line: int) -> int:
    below = enumerate(lines[line:], line + 1)
    return next((number for number, text in below if text.strip() and not text.lstrip().startswith("#")), line)
