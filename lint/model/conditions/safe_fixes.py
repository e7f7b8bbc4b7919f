"""Fixes that are right for one of the functions that a call may run, and wrong for another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..names import canonical
from ..report import SetKeyword

if TYPE_CHECKING:
    import ast

    from ..report import Report
    from ..run import Run


def without_wrong_fix(run: Run, report: Report) -> Report:
    """``report`` without a fix that gives a keyword to a call which may run another library's function.

    Under a condition a file may import the `checkpoint` of DeepSpeed or fairscale, which know no `use_reentrant`. A
    parser that fills training arguments gets no fields by keyword, and a helper may take no keywords.
    """
    added = [
        change for change in (report.fix.changes if report.fix is not None else ()) if isinstance(change, SetKeyword)
    ]
    if any(len(_libraries(run, change.call)) > 1 or _is_refused(run, change) for change in added):
        return report._replace(fix=None)
    return report


def _is_refused(run: Run, change: SetKeyword) -> bool:
    """Whether a helper that hands the call on takes no keywords, or gives this one itself."""
    return any(
        change.name in {word.arg for word in inner.keywords} or all(word.arg for word in inner.keywords)
        for call in run.calls_at(change.call)
        for inner in call.handed
    )


def _libraries(run: Run, node: ast.Call) -> set[str]:
    """The libraries whose functions the call at ``node`` may run."""
    calls = run.calls_at(node)
    named = {canonical(call.name).partition(".")[0] for call in calls if call.name}
    return named | {call.method for call in calls if call.method}
