"""Python code blocks in Markdown: each is a program of its own, at the lines and columns where it stands.

The rest of the document becomes empty lines, so what is said of a block is true for the document. A block that is no
Python is a fragment for readers and is left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .edits import apply_edits
from .error import SourceError
from .lines import split_lines
from .notebook import as_python, parses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..finding import Edit, Finding

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
_LANGUAGE = re.compile(r"\{?\.?\s*(?:python3?|py3?)(?![\w+-])", re.IGNORECASE)


class Block(NamedTuple):
    """One code block."""

    #: Its first and last line in the document, 1-based, without the fences.
    first: int
    last: int
    #: Python text with the block at its own lines and columns.
    python: str


class Markdown(NamedTuple):
    """A document and the Python in it."""

    text: str
    blocks: tuple[Block, ...]

    @property
    def python(self) -> str:
        """All blocks as one text, line for line."""
        lines = [""] * len(split_lines(self.text))
        for block in self.blocks:
            # The line of the fence may hold what makes an indented block valid.
            lines[block.first - 2 : block.last] = split_lines(block.python)[block.first - 2 : block.last]
        return "\n".join(lines)


def read_markdown(text: str) -> Markdown:
    """The Python blocks of a document."""
    lines = split_lines(text)
    found = (_block(lines, *place) for place in _fenced(lines))
    return Markdown(text, tuple(block for block in found if block is not None))


def _fenced(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """First and last line (as indices, the last exclusive) of each Python block, and its indentation."""
    opened: tuple[int, re.Match[str]] | None = None
    for index, line in enumerate(lines):
        match = _FENCE.match(line)
        if match is None:
            continue
        if opened is None:
            opened = (index, match)
            continue
        start, opening = opened
        closes = match["fence"].startswith(opening["fence"]) and not match["info"].strip()
        if closes:
            if _LANGUAGE.match(opening["info"]):
                yield start + 1, index, opening["indent"]
            opened = None


def _block(lines: list[str], start: int, end: int, indent: str) -> Block | None:
    written = lines[start:end]
    first = next((line for line in written if line.strip()), "")
    # A block may stand further left than its fence, and so may the lines of a string in it.
    indent = indent if first.startswith(indent) else ""
    python = split_lines(as_python("\n".join(line.removeprefix(indent) for line in written)))
    if start == end or all(line.strip() in ("", "#") for line in python):
        return None
    # What stands indented in a list keeps its columns as the body of a statement on the line of the fence.
    head = [*[""] * (start - 1), "if True:" if indent else ""]
    body = [
        f"{indent}{line}" if line and was.startswith(indent) else line
        for was, line in zip(written, python, strict=True)
    ]
    text = "\n".join([*head, *body, ""])
    return Block(start + 1, end, text) if parses(text) else None


def check_blocks(markdown: Markdown, check: Callable[[str], list[Finding]]) -> list[Finding]:
    """The findings of ``check`` in each block, without fixes that would write outside of it."""
    return [_within(block, finding) for block in markdown.blocks for finding in check(block.python)]


def _within(block: Block, finding: Finding) -> Finding:
    edits = finding.fix.edits if finding.fix is not None else ()
    inside = all(block.first <= edit.span.line <= edit.span.end_line <= block.last + 1 for edit in edits)
    return finding if inside else finding._replace(fix=None)


def edited(markdown: Markdown, edits: Iterable[Edit]) -> Markdown:
    """The document with ``edits`` made in its blocks.

    Raises:
        SourceError: A block would not be Python any more.
    """
    after = read_markdown(apply_edits(markdown.text, edits))
    if len(after.blocks) != len(markdown.blocks):
        raise SourceError("a code block would not be valid Python any more")
    return after
