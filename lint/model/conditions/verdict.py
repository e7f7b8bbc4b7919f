"""What becomes of the reports of a rule in a run: a finding, a note under a condition, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...finding import Applicability, Severity
from .older_versions import is_for_other_versions
from .open_conditions import cover_every_case, in_words, open_conditions
from .safe_fixes import without_wrong_fix

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

    from ...facts.values import Guard
    from ..report import Report
    from ..run import Run


def judged(run: Run, reports: Iterable[Report]) -> Iterator[Report]:
    """``reports`` of one rule, those under an open condition as notes, those of code for older releases left out."""
    conditional: dict[ast.AST, list[tuple[Report, tuple[Guard, ...]]]] = {}
    certain: set[ast.AST] = set()
    for report in reports:
        places = run.places(report.node)
        if places and all(is_for_other_versions(place, run.versions) for place in places):
            continue
        conditions = open_conditions(run, report)
        if conditions or report.assumes:
            conditional.setdefault(report.node, []).append((report, conditions))
        else:
            certain.add(report.node)
            yield without_wrong_fix(run, report)
    for node, found in conditional.items():
        if node in certain:
            continue
        if cover_every_case(conditions for report, conditions in found if not report.assumes):
            yield without_wrong_fix(run, found[0][0])
        else:
            yield without_wrong_fix(run, _note(*found[0]))


def _note(report: Report, conditions: tuple[Guard, ...]) -> Report:
    condition = " and ".join(filter(None, (report.assumes, in_words(conditions))))
    fix = report.fix
    if fix is not None and fix.applicability is Applicability.SAFE:
        fix = fix._replace(applicability=Applicability.UNSAFE)
    message = f"if {condition}: {report.message}"
    return report._replace(severity=Severity.NOTE, message=message, condition=condition, fix=fix)
