"""A finding as the JSON object of ``json`` and ``json-lines``: ruff's fields, then ours."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...catalogue.urls import page_url
from ...configs import is_settings
from ...configs.comments import row_behind
from ...suppressions.comments import comment_row

if TYPE_CHECKING:
    from ...finding import Finding, Fix, Note, Span
    from ..report import Excerpts


def record(finding: Finding, excerpts: Excerpts) -> dict[str, Any]:
    """The object of one finding. ``noqa_row`` is the row at whose end a suppression comment belongs."""
    return {
        "cell": finding.cell,
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
        "filename": _absolute(finding.filename),
        "location": location(finding.span.line, finding.span.column),
        "end_location": location(finding.span.end_line, finding.span.end_column),
        "fix": None if finding.fix is None else _fix(finding.fix),
        "noqa_row": _noqa_row(finding, excerpts),
        "url": page_url(finding.code),
        "notes": [_note(note) for note in finding.notes],
        "versions": finding.versions,
        "condition": finding.condition,
    }


def _absolute(filename: str) -> str:
    return filename if filename == "-" else os.path.abspath(filename)


def location(row: int, column: int) -> dict[str, int]:
    """A place, counted from 1, columns in characters."""
    return {"row": row, "column": column}


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "applicability": str(fix.applicability),
        "message": fix.message,
        "edits": [{"content": edit.content, **_range(edit.span)} for edit in fix.edits],
    }


def _note(note: Note) -> dict[str, Any]:
    return {"message": note.text, "filename": _absolute(note.filename), "cell": note.cell, **_range(note.span)}


def _range(span: Span) -> dict[str, Any]:
    return {
        "location": location(span.line, span.column),
        "end_location": location(span.end_line, span.end_column),
    }


def _noqa_row(finding: Finding, excerpts: Excerpts) -> int:
    text = "\n".join(excerpts.lines(finding.filename, finding.cell))
    if is_settings(finding.filename):
        return row_behind(finding.filename, text, finding.span.line)
    return comment_row(text, finding.span.line)
