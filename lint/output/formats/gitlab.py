"""GitLab's Code Quality report (the Code Climate subset it reads)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...catalogue.urls import page_url
from ...finding import Severity
from ..fingerprints import fingerprints
from ..report import relative

if TYPE_CHECKING:
    from ...finding import Finding
    from ..report import Report

_LEVELS = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.NOTE: "info"}


def render(report: Report) -> str:
    """A JSON array. Fingerprints do not depend on lines, so moving code does not make a finding new."""
    pairs = zip(report.findings, fingerprints(report), strict=True)
    return json.dumps([_issue(finding, fingerprint) for finding, fingerprint in pairs], indent=2)


def _issue(finding: Finding, fingerprint: str) -> dict[str, Any]:
    path = relative(finding.filename)
    cell = f"cell {finding.cell}: " if finding.cell is not None else ""
    return {
        "check_name": finding.code,
        "description": f"{cell}{finding.code} {finding.message}",
        "content": {"body": f"{finding.name}: {page_url(finding.code)}"},
        "severity": _LEVELS[finding.severity],
        "fingerprint": fingerprint,
        "location": {
            "path": path,
            "positions": {
                "begin": {"line": finding.span.line, "column": finding.span.column},
                "end": {"line": finding.span.end_line, "column": finding.span.end_column},
            },
        },
    }
