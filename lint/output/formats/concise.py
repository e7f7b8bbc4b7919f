"""One line a finding, as editors and ``grep`` like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...finding import Applicability
from ._style import Style, place, summary

if TYPE_CHECKING:
    from ...finding import Finding
    from ..report import Report

COLORED = True


def render(report: Report, color: bool) -> str:
    """``file:line:column: CODE message``; ``[*]`` marks what ``--fix`` repairs."""
    style = Style(color)
    lines = [_line(finding, style) for finding in report.findings]
    return "\n".join([*lines, closing] if (closing := summary(report)) else lines)


def _line(finding: Finding, style: Style) -> str:
    fixable = finding.fix is not None and finding.fix.applicability is Applicability.SAFE
    mark = f" {style.blue('[*]')}" if fixable else ""
    code = style.severity(finding.code, finding.severity)
    return f"{style.bold(place(finding))}: {code}{mark} {finding.message}"
