"""GitLab's Code Quality report (the Code Climate subset it reads)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from ...finding import Severity
from ..report import relative

if TYPE_CHECKING:
    from ...finding import Finding
    from ..report import Report

_LEVELS = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.NOTE: "info"}


def render(report: Report) -> str:
    """A JSON array. Fingerprints do not depend on lines, so moving code does not make a finding new."""
    seen: Counter[str] = Counter()
    return json.dumps([_issue(finding, seen) for finding in report.findings], indent=2)


def _issue(finding: Finding, seen: Counter[str]) -> dict[str, Any]:
    path = relative(finding.filename)
    identity = f"{path}\n{finding.code}\n{finding.message}"
    seen[identity] += 1
    fingerprint = hashlib.sha256(f"{identity}\n{seen[identity]}".encode()).hexdigest()[:32]
    cell = f"cell {finding.cell}: " if finding.cell is not None else ""
    return {
        "check_name": finding.code,
        "description": f"{cell}{finding.code} {finding.message}",
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
