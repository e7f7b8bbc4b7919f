"""What ckpt-lint reports. Every other part of the linter either makes these or prints them.

Plain ``NamedTuple``s: a clean file pays for importing this module, and ``dataclasses`` costs more than our own
analysis.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad the consequence is, not how sure we are: a finding that is not sure is not reported."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Applicability(StrEnum):
    """Whether ``--fix`` may apply a fix (ruff's three levels)."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    DISPLAY = "display"


class Span(NamedTuple):
    """A range of source text. Lines and columns count from 1, columns in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class Note(NamedTuple):
    """A second place that decides a finding: where it is set, where it is overwritten, what holds."""

    filename: str
    span: Span
    text: str
    #: 1-based notebook cell; None outside notebooks.
    cell: int | None = None


class Edit(NamedTuple):
    """Replace ``span`` by ``content`` (an empty span inserts, an empty content deletes)."""

    span: Span
    content: str


class Fix(NamedTuple):
    """Edits that belong together: all are applied or none."""

    applicability: Applicability
    message: str
    edits: tuple[Edit, ...]


class Finding(NamedTuple):
    """One confirmed mistake at one place."""

    code: str
    name: str
    severity: Severity
    message: str
    filename: str
    span: Span
    notes: tuple[Note, ...] = ()
    fix: Fix | None = None
    #: The library versions the finding holds for ("transformers>=5.23"), or None when it holds for all supported ones.
    versions: str | None = None
    #: 1-based notebook cell; None outside notebooks.
    cell: int | None = None
    #: What else must hold, in words, for what is only shown with ``--notes``; None for a mistake in every run.
    condition: str | None = None
