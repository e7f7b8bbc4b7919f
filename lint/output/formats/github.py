"""Workflow commands: GitHub Actions shows each finding at its line of the pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...finding import Severity
from ..report import relative
from ..stored_places import StoredPlaces

if TYPE_CHECKING:
    from ...finding import Finding, Span
    from ..report import Report

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report) -> str:
    """One workflow command a finding."""
    places = StoredPlaces(report)
    return "\n".join(_command(finding, places.span(finding)) for finding in report.findings)


def _command(finding: Finding, span: Span | None) -> str:
    where = _where(span) if span is not None else {}
    properties = {"title": f"ckpt-lint ({finding.code})", "file": relative(finding.filename), **where}
    fields = ",".join(f"{key}={_escape_property(str(value))}" for key, value in properties.items())
    return f"::{_LEVELS[finding.severity]} {fields}::{_escape(_text(finding))}"


def _where(span: Span) -> dict[str, int]:
    """The place in the file; columns are allowed only when both ends are on one line."""
    if span.end_line != span.line:
        return {"line": span.line, "endLine": span.end_line}
    return {"line": span.line, "col": span.column, "endLine": span.end_line, "endColumn": span.end_column}


def _text(finding: Finding) -> str:
    cell = f"cell {finding.cell}:" if finding.cell is not None else ""
    place = f"{relative(finding.filename)}:{cell}{finding.span.line}:{finding.span.column}"
    lines = [f"{place}: {finding.code} {finding.message}"]
    lines += [f"note: {relative(note.filename)}:{note.span.line}: {note.text}" for note in finding.notes]
    lines += [f"help: {finding.fix.message}"] if finding.fix is not None else []
    return "\n".join(lines)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
