"""Colours and the closing line, shared by the formats that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...finding import Applicability, Finding, Severity

if TYPE_CHECKING:
    from ..report import Report

_COLORS = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.NOTE: "1;36"}


class Style(NamedTuple):
    """ANSI colours, or none."""

    color: bool

    def paint(self, text: str, code: str) -> str:
        """``text`` in the colour of the ANSI ``code``."""
        return f"\033[{code}m{text}\033[0m" if self.color else text

    def bold(self, text: str) -> str:
        """Bold ``text``."""
        return self.paint(text, "1")

    def blue(self, text: str) -> str:
        """``text`` in the colour of frames and arrows."""
        return self.paint(text, "1;34")

    def severity(self, text: str, severity: Severity) -> str:
        """``text`` in the colour of ``severity``."""
        return self.paint(text, _COLORS[severity])


def place(finding: Finding) -> str:
    """``file:line:column``, with the cell in between for a notebook."""
    cell = f":cell {finding.cell}" if finding.cell is not None else ""
    return f"{finding.filename}{cell}:{finding.span.line}:{finding.span.column}"


def summary(report: Report) -> str:
    """The closing line: how many findings, and how many of them can be fixed."""
    if report.quiet:
        return ""
    fixed = f"Fixed {_count(report.fixed, 'mistake')}. " if report.fixed else ""
    if not report.findings:
        return fixed + ("All checks passed!" if not report.failures else "")
    found = f"{fixed}Found {_count(len(report.findings), 'mistake')}."
    safe = _fixable(report, Applicability.SAFE)
    unsafe = _fixable(report, Applicability.UNSAFE)
    if safe and unsafe:
        return f"{found} {safe} fixable with `--fix`, {unsafe} more with `--unsafe-fixes`."
    if safe:
        return f"{found} {safe} fixable with `--fix`."
    if unsafe:
        return f"{found} {unsafe} fixable with `--fix --unsafe-fixes` (they change what the run does)."
    return found


def _fixable(report: Report, applicability: Applicability) -> int:
    return sum(f.fix is not None and f.fix.applicability is applicability for f in report.findings)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
