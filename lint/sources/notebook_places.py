"""Where the code of a notebook's cells is in its file: viewers of the file count the lines of its JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ..configs.json_text import read_json
from ..configs.nodes import ConfigError, Mapping, Node, Scalar, Sequence
from ..finding import Edit
from .locator import Locator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Span

#: One character of a JSON string as it is written: a pair of surrogates, an escape, or itself.
_WRITTEN = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)


class NotebookPlaces:
    """The file of a notebook; ``raw`` is its text."""

    def __init__(self, raw: str) -> None:
        self._raw = raw
        self._locator = Locator(raw)
        try:
            self._cells = _cells(read_json(raw))
        except ConfigError:
            self._cells = ()

    def span(self, cell: int, span: Span) -> Span | None:
        """Where ``span`` of the cell of this number (from 1) is in the file; None when there is no such text."""
        found = self._offsets(cell, span)
        return None if found is None else self._locator.span(*found)

    def edit(self, cell: int, edit: Edit) -> Edit | None:
        """``edit`` as a change of the file; None when it reaches from one string of the JSON into another."""
        found = self._offsets(cell, edit.span)
        if found is None or '"' in _without_escapes(self._raw[slice(*found)]):
            return None
        return Edit(self._locator.span(*found), _escaped(edit.content, self._raw.isascii()))

    def _offsets(self, cell: int, span: Span) -> tuple[int, int] | None:
        strings = self._cells[cell - 1] if cell <= len(self._cells) else ()
        cell_text = Locator("".join(str(string.value) for string in strings))
        if not strings or span.line > len(cell_text.lines):
            return None
        begin, end = cell_text.offsets(span)
        return self._offset(strings, begin, begin == end), self._offset(strings, end, True)

    def _offset(self, strings: tuple[Scalar, ...], position: int, ends: bool) -> int:
        """Where the character at ``position`` of a cell is written; the end of a string where something ``ends``."""
        for string in strings:
            length = len(str(string.value))
            if position < length or (position == length and (ends or string is strings[-1])):
                break
            position -= length
        written = _WRITTEN.finditer(self._raw, string.begin + 1, string.end - 1)
        return next((match.start() for index, match in enumerate(written) if index == position), string.end - 1)


def _cells(document: Node) -> tuple[tuple[Scalar, ...], ...]:
    """The strings of each cell, in the order of the file."""
    cells = _value(document, "cells")
    return tuple(tuple(_strings(_value(cell, "source"))) for cell in cells.items) if isinstance(cells, Sequence) else ()


def _value(node: Node, key: str) -> Node | None:
    return node.entries[key].value if isinstance(node, Mapping) and key in node.entries else None


def _strings(source: Node | None) -> Iterable[Scalar]:
    items = source.items if isinstance(source, Sequence) else (source,)
    return (item for item in items if isinstance(item, Scalar))


def _without_escapes(written: str) -> str:
    return re.sub(r"\\.", "", written)


def _escaped(content: str, ascii_only: bool) -> str:
    return json.dumps(content, ensure_ascii=ascii_only)[1:-1]
