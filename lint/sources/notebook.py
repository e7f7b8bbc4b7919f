"""Jupyter notebooks: code cells to one Python text and back, line for line.

Magics are not Python. Each magic line becomes a statement on the same line, so line numbers stay true; a cell that
belongs to another language (``%%bash``) becomes comments. The text the user wrote is never changed except by a fix.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from .edits import apply_edits
from .error import SourceError
from .lines import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Edit, Finding, Fix, Note, Span

_INDENT = re.compile(r"\n([ \t]+)\S")
_MAGIC_LINE = re.compile(r"([ \t]*)(?:[!%?]|[^#'\"]*[\w)\]]\?{1,2}[ \t]*$)")
_INSTALLS = re.compile(r"[ \t]*[!%][ \t]*(?:\S+[ \t]+)*pip3?[ \t]+install\b")
_MAGIC_VALUE = re.compile(r"([ \t]*[\w.,\[\]'\" \t]+=[ \t]*)[!%]")
#: Cell magics whose body is Python that runs in the notebook's own namespace.
_PYTHON_CELL_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%python", "%%python3")


class Cell(NamedTuple):
    """One code cell."""

    #: 1-based position among all cells of the notebook, markdown cells included.
    number: int
    #: What the user wrote.
    text: str
    #: 0-based line of the joined text at which the cell starts.
    start: int


class Notebook(NamedTuple):
    """A parsed notebook and its code as one Python text."""

    text: str
    cells: tuple[Cell, ...]
    document: dict[str, Any]
    #: The document's own formatting, kept when it is written back.
    indent: str | int | None
    ascii_only: bool
    final_newline: bool


def parse_notebook(data: bytes) -> Notebook:
    """Read the JSON of a notebook.

    Raises:
        SourceError: It is no notebook, or not one of Python code.
    """
    try:
        raw = data.decode("utf-8-sig")
        document = json.loads(raw)
    except ValueError as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise SourceError(f"not a notebook: {error}", line, column) from error
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise SourceError("not a notebook: it has no list of `cells` (notebook format 4 or later is needed)")
    cells = _code_cells(document) if _is_python(document) else ()
    indent = _INDENT.search(raw)
    return Notebook(
        text="".join(as_python(cell.text) + "\n" for cell in cells),
        cells=cells,
        document=document,
        indent=indent.group(1) if indent else None,
        ascii_only=raw.isascii(),
        final_newline=raw.endswith("\n"),
    )


def _is_python(document: dict[str, Any]) -> bool:
    metadata = document.get("metadata")
    info = metadata.get("language_info") if isinstance(metadata, dict) else None
    language = info.get("name") if isinstance(info, dict) else None
    return language is None or str(language).lower() in ("python", "ipython")


def _code_cells(document: dict[str, Any]) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    start = 0
    for number, cell in enumerate(document["cells"], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        cells.append(Cell(number, text, start))
        start += len(split_lines(text))
    return tuple(cells)


def as_python(text: str) -> str:
    """``text`` with its magics replaced, line for line; all comments when the cell is of another language."""
    lines = split_lines(text)
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%"):
        if first.split()[0] not in _PYTHON_CELL_MAGICS:
            return "\n".join("#" for _ in lines)
        at = next(index for index, line in enumerate(lines) if line.strip())
        lines[at] = "#"
    if not parses("\n".join(lines)):
        lines = _without_magics(lines)
    return "\n".join(lines) if parses("\n".join(lines)) else "\n".join("#" for _ in lines)


def _without_magics(lines: list[str]) -> list[str]:
    result: list[str] = []
    continued = False
    for number, line in enumerate(lines):
        if continued:
            replaced = "#"
        elif match := _MAGIC_LINE.match(line):
            # What it installs says which versions the rest runs with.
            kept = f"  # {_whole(lines[number:])}" if _INSTALLS.match(line) else ""
            replaced = f"{match.group(1)}pass{kept}"
        elif match := _MAGIC_VALUE.match(line):
            replaced = f"{match.group(1)}None"
        else:
            result.append(line)
            continue
        continued = line.rstrip().endswith("\\")
        result.append(replaced)
    return result


def _whole(lines: list[str]) -> str:
    """The command that starts ``lines``, those that a backslash continues as one."""
    parts: list[str] = []
    for line in lines:
        parts.append(line.strip().removesuffix("\\").strip())
        if not line.rstrip().endswith("\\"):
            break
    return " ".join(parts)


def parses(text: str) -> bool:
    """Whether ``text`` is Python."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def unparsable_cells(notebook: Notebook) -> list[Cell]:
    """The cells left out of the text because they are not Python even without their magics."""
    return [
        cell
        for cell in notebook.cells
        if not cell.text.lstrip().startswith("%%")
        and not parses(cell.text)
        and not parses("\n".join(_without_magics(split_lines(cell.text))))
    ]


def cell_at(notebook: Notebook, line: int) -> Cell:
    """The cell that line ``line`` (1-based) of the joined text belongs to."""
    index = bisect_right([cell.start for cell in notebook.cells], line - 1) - 1
    return notebook.cells[max(index, 0)]


def to_cell(notebook: Notebook, finding: Finding) -> Finding:
    """``finding`` with lines counted within its cell, as notebook users count them."""
    cell = cell_at(notebook, finding.span.line)
    return notes_to_cells(notebook, finding.filename, finding)._replace(
        cell=cell.number,
        span=_shift(finding.span, cell.start),
        fix=_fix_to_cell(notebook, finding.fix, cell),
    )


def notes_to_cells(notebook: Notebook, filename: str, finding: Finding) -> Finding:
    """``finding`` with the notes that lie in the notebook, which is called ``filename``, counted within their cells."""

    def within(note: Note) -> Note:
        cell = cell_at(notebook, note.span.line)
        text = f"{note.text} (cell {cell.number})"
        return note._replace(span=_shift(note.span, cell.start), text=text, cell=cell.number)

    return finding._replace(notes=tuple(within(note) if note.filename == filename else note for note in finding.notes))


def _fix_to_cell(notebook: Notebook, fix: Fix | None, cell: Cell) -> Fix | None:
    if fix is None or any(cell_at(notebook, edit.span.line) != cell for edit in fix.edits):
        return None
    return fix._replace(edits=tuple(edit._replace(span=_shift(edit.span, cell.start)) for edit in fix.edits))


def _shift(span: Span, lines: int) -> Span:
    return span._replace(line=span.line - lines, end_line=span.end_line - lines)


def edit_notebook(notebook: Notebook, edits: Iterable[Edit]) -> bytes:
    """The notebook's bytes with ``edits`` (in coordinates of the joined text) applied to the cells they stand in."""
    by_cell: dict[Cell, list[Edit]] = {}
    for edit in edits:
        cell = cell_at(notebook, edit.span.line)
        by_cell.setdefault(cell, []).append(edit._replace(span=_shift(edit.span, cell.start)))
    cells = list(notebook.document["cells"])
    for cell, cell_edits in by_cell.items():
        text = apply_edits(cell.text, cell_edits)
        old = cells[cell.number - 1]
        cells[cell.number - 1] = {**old, "source": _like(old["source"], text)}
    document = {**notebook.document, "cells": cells}
    separators = (",", ": ") if notebook.indent is not None else None
    raw = json.dumps(document, indent=notebook.indent, ensure_ascii=notebook.ascii_only, separators=separators)
    return (raw + ("\n" if notebook.final_newline else "")).encode()


def _like(old: object, text: str) -> object:
    return text.splitlines(keepends=True) if isinstance(old, list) else text
