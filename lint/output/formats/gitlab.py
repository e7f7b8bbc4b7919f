"""GitLab's Code Quality report (the Code Climate subset it reads)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...catalogue.urls import page_url
from ...finding import Severity
from ..fingerprints import fingerprints
from ..report import relative
from ..stored_places import StoredPlaces, in_cell

if TYPE_CHECKING:
    from ...finding import Finding, Span
    from ..report import Report

_LEVELS = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.NOTE: "info"}


def render(report: Report) -> str:
    """A JSON array. Fingerprints do not depend on lines, so moving code does not make a finding new."""
    pairs, places = zip(report.findings, fingerprints(report), strict=True), StoredPlaces(report)
    return json.dumps(
        [_issue(finding, places.span(finding) or finding.span, fingerprint) for finding, fingerprint in pairs], indent=2
    )


def _issue(finding: Finding, span: Span, fingerprint: str) -> dict[str, Any]:
    path = relative(finding.filename)
    return {
        "check_name": finding.code,
        "description": f"{in_cell(finding)}{finding.code} {finding.message}",
        "content": {"body": f"{finding.name}: {page_url(finding.code)}"},
        "severity": _LEVELS[finding.severity],
        "fingerprint": fingerprint,
        "location": {
            "path": path,
            "positions": {
                "begin": {"line": span.line, "column": span.column},
                "end": {"line": span.end_line, "column": span.end_column},
            },
        },
    }
