"""Comments of YAML and of the shell that silence findings: the same words as in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sources.locator import Locator
from ..suppressions.comments import NOTHING, Logical, Suppressions, covered, directives, may_suppress
from . import is_launch
from .shell import commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..sources.source import Source


def comments_of(source: Source) -> Suppressions:
    """The suppressions in a configuration or launch script; JSON has no comments, so it has none.

    A comment behind an entry covers its line, one behind a command all of its lines; one on a line of its own covers
    the next entry or command.
    """
    if source.filename.endswith(".json") or not may_suppress(source.text):
        return NOTHING
    locator = Locator(source.text)
    logical = tuple(_logical_lines(source.filename, source.text))
    found = []
    for offset, text in _comments_in(source):
        line, column = locator.position(offset)
        own_line = not locator.lines[line - 1][: column - 1].strip()
        for suppression in directives(text, line, column, own_line):
            first, last = covered(suppression.kind, line, own_line, logical)
            found.append(suppression._replace(first=first, last=last))
    return Suppressions(tuple(found), logical)


def row_behind(filename: str, text: str, line: int) -> int:
    """The line on which a comment about ``line`` can stand: a backslash must remain the last of its line."""
    if not is_launch(filename):
        return line
    return next((end for first, end, _ in _logical_lines(filename, text) if first <= line <= end), line)


def _comments_in(source: Source) -> Iterator[tuple[int, str]]:
    if is_launch(source.filename):
        return commands.comments_in(source.text)
    from .yaml_text import comments_in  # start-up: PyYAML, which only configurations need

    return comments_in(source.text)


def _logical_lines(filename: str, text: str) -> Iterator[Logical]:
    """The lines of each command of a launch script; of a configuration those that are not only a comment."""
    locator = Locator(text)
    if is_launch(filename):
        for begin, end in commands.command_lines(text):
            yield Logical(locator.line(begin), locator.line(end - 1), decorator=False)
        return
    for number, line in enumerate(locator.lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield Logical(number, number, decorator=False)
