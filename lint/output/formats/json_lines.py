"""One JSON object a line and finding, with the fields of ``json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..report import Excerpts
from ._record import record

if TYPE_CHECKING:
    from ..report import Report


def render(report: Report) -> str:
    """The lines; nothing at all when there is nothing to report."""
    excerpts = Excerpts(report)
    return "\n".join(json.dumps(record(finding, excerpts)) for finding in report.findings)
