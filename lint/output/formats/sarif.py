"""SARIF 2.1.0, with the fixes, for code scanning services and editors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .... import __version__
from ....pages import in_repository
from ...catalogue.rules import all_rules
from ...catalogue.urls import README, page_url
from ...finding import Severity
from ..fingerprints import fingerprints
from ..report import relative
from ..stored_places import StoredPlaces, in_cell

if TYPE_CHECKING:
    from ...catalogue.rules import Rule
    from ...finding import Edit, Finding, Note, Span
    from ..report import Report

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def render(report: Report) -> str:
    """The log of one run. Columns are counted in Unicode code points."""
    codes = sorted({finding.code for finding in report.findings})
    index = {code: number for number, code in enumerate(codes)}
    places = StoredPlaces(report)
    run = {
        "tool": {"driver": _driver([rule for rule in all_rules() if rule.code in index], codes)},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [
            _result(finding, index[finding.code], fingerprint, places)
            for finding, fingerprint in zip(report.findings, fingerprints(report), strict=True)
        ],
    }
    return json.dumps({"version": "2.1.0", "$schema": _SCHEMA, "runs": [run]}, indent=2)


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def _driver(rules: list[Rule], codes: list[str]) -> dict[str, Any]:
    known = {rule.code: rule for rule in rules}
    return {
        "name": "ckpt-lint",
        "version": __version__,
        "semanticVersion": __version__,
        "informationUri": in_repository(README),
        "rules": [_rule(known[code]) if code in known else {"id": code} for code in codes],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.summary},
        "help": {"text": rule.page.strip(), "markdown": rule.page.strip()},
        "helpUri": page_url(rule.code),
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _invocation(report: Report) -> dict[str, Any]:
    notes = [{"level": "error", "message": {"text": failure}} for failure in report.failures]
    return {"executionSuccessful": not notes, "toolExecutionNotifications": notes}


def _result(finding: Finding, rule_index: int, fingerprint: str, places: StoredPlaces) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "partialFingerprints": {"ckptLint/v1": fingerprint},
        "message": {"text": f"{in_cell(finding)}{finding.message}"},
        "locations": [{"physicalLocation": _location(finding.filename, places.span(finding))}],
    }
    if finding.notes:
        result["relatedLocations"] = [_related(number, note, places) for number, note in enumerate(finding.notes)]
    edits = places.edits(finding)
    if finding.fix is not None and edits:
        result["fixes"] = [_fix(finding.filename, finding.fix.message, edits)]
    extra = {"cell": finding.cell, "versions": finding.versions}
    if properties := {key: value for key, value in extra.items() if value is not None}:
        result["properties"] = properties
    return result


def _location(filename: str, span: Span | None) -> dict[str, Any]:
    region = {} if span is None else {"region": _region(span)}
    return {"artifactLocation": _artifact(filename), **region}


def _artifact(filename: str) -> dict[str, str]:
    return {"uri": quote(relative(filename))}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _related(number: int, note: Note, places: StoredPlaces) -> dict[str, Any]:
    return {
        "id": number,
        "physicalLocation": _location(note.filename, places.span(note)),
        "message": {"text": note.text},
    }


def _fix(filename: str, message: str, edits: list[Edit]) -> dict[str, Any]:
    replacements = [{"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.content}} for edit in edits]
    change = {"artifactLocation": _artifact(filename), "replacements": replacements}
    return {"description": {"text": message}, "artifactChanges": [change]}
