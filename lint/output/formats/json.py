"""One JSON array of all findings, with the fields of ruff's ``json`` and ours (severity, notes, versions)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..report import Excerpts
from ._record import record

if TYPE_CHECKING:
    from ..report import Report


def render(report: Report) -> str:
    """The array; empty when there is nothing to report."""
    excerpts = Excerpts(report)
    return json.dumps([record(finding, excerpts) for finding in report.findings], indent=2)
