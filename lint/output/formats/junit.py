"""JUnit XML: one test suite a file, one failed case a finding."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ..report import relative

if TYPE_CHECKING:
    from ...finding import Finding
    from ..report import Report


def render(report: Report) -> str:
    """The document. A run without findings has one passed case, so a CI shows that something ran."""
    count, errors = len(report.findings), len(report.failures)
    head = f'<testsuites name="ckpt-lint" tests="{max(count + errors, 1)}" failures="{count}" errors="{errors}">'
    suites = [_suite(name, list(group)) for name, group in groupby(report.findings, lambda f: f.filename)]
    if errors:
        suites.append(_failures(report.failures))
    if not suites:
        suites = [
            '  <testsuite name="ckpt-lint" tests="1" failures="0" errors="0">',
            '    <testcase name="No errors found"/>',
        ]
        suites.append("  </testsuite>")
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *suites, "</testsuites>"])


def _suite(filename: str, findings: list[Finding]) -> str:
    path = relative(filename)
    head = f'  <testsuite name={_attr(path)} tests="{len(findings)}" failures="{len(findings)}" errors="0">'
    return "\n".join([head, *(_case(finding, path) for finding in findings), "  </testsuite>"])


def _case(finding: Finding, path: str) -> str:
    cell = f"cell {finding.cell}, " if finding.cell is not None else ""
    where = f"{cell}line {finding.span.line}, col {finding.span.column}"
    return (
        f"    <testcase name={_attr(f'{finding.code} {finding.name}')} classname={_attr(path)} "
        f'line="{finding.span.line}" column="{finding.span.column}">\n'
        f"      <failure type={_attr(finding.severity)} message={_attr(finding.message)}>"
        f"{escape(_printable(f'{where}, {finding.message}'))}</failure>\n"
        f"    </testcase>"
    )


def _failures(failures: tuple[str, ...]) -> str:
    cases = [f'    <testcase name="ckpt-lint"><error message={_attr(text)}/></testcase>' for text in failures]
    head = f'  <testsuite name="ckpt-lint" tests="{len(cases)}" failures="0" errors="{len(cases)}">'
    return "\n".join([head, *cases, "  </testsuite>"])


def _attr(text: str) -> str:
    return quoteattr(_printable(text))


def _printable(text: str) -> str:
    """``text`` without the characters XML 1.0 cannot hold."""
    return "".join(char for char in text if char in "\t\n\r" or " " <= char < "\ud800" or "\ue000" <= char < "\ufffe")
