"""Reports about settings to findings: their place is known, so nothing has to be confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.origin import origin, setting_span
from ..finding import Finding, Note, Span
from .edits import build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..facts.walk import Program
    from ..model.report import Remark, Report
    from ..rules import Rule
    from .document import Document


def settings_findings(
    proposed: Iterable[tuple[Rule, Report]], program: Program, documents: Mapping[str, Document]
) -> list[Finding]:
    """The findings among ``proposed`` that lie in one of ``documents`` (by file name)."""
    found: dict[tuple[str, str, Span], Finding] = {}
    for rule, report in proposed:
        span = setting_span(report.node)
        document = documents.get(origin(report.node) or "")
        if span is not None and document is not None:
            notes = tuple(note(remark, program) for remark in report.notes)
            fix = build(report.fix, document) if report.fix is not None else None
            finding = rule.finding(report, document.filename, span, notes, fix)
            found.setdefault((finding.code, finding.filename, span), finding)
    return list(found.values())


def note(remark: Remark, program: Program) -> Note:
    """The second place of a finding; in a program it is shown by its first line."""
    span = setting_span(remark.node)
    if span is None:
        line, column = getattr(remark.node, "lineno", 1), getattr(remark.node, "col_offset", 0) + 1
        span = Span(line, column, line, column)
    return Note(origin(remark.node) or program.filename, span, remark.text)
