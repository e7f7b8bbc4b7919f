"""What can be done to a checked file: its findings are repaired, or silenced by comments."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..analysis.result import Checked, InternalError
from ..sources.error import SourceError
from ..sources.source import Source, with_edits
from ..suppressions.add_ignore import ignore_edits
from .apply import fix_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..finding import Finding

    #: Checks another version of the same file.
    Recheck: TypeAlias = Callable[[Source], Checked]


class Outcome(NamedTuple):
    """A file after a transform."""

    #: What is left to report.
    checked: Checked
    #: The bytes to store; None when the file stays as it is.
    data: bytes | None = None
    #: How many findings of each code were dealt with.
    applied: Counter[str] = Counter()  # noqa: RUF012 - never changed
    #: Why the file is left as it was, though there was something to do; None otherwise.
    problem: str | None = None


class Transform(NamedTuple):
    """A change of checked files."""

    apply: Callable[[Checked, Source, Recheck], Outcome]
    #: What to say of a file in which it failed.
    undone: str


def fixing(unsafe: bool) -> Transform:
    """Apply the fixes that ``--fix`` (or, with ``unsafe``, ``--unsafe-fixes``) may apply."""

    def apply(checked: Checked, source: Source, recheck: Recheck) -> Outcome:
        latest = checked

        def findings_of(version: Source) -> list[Finding]:
            nonlocal latest
            if version is not source:
                latest = recheck(version)
            if latest.result.failure:
                raise InternalError(latest.result.failure)
            return list(latest.findings)

        try:
            fixed = fix_source(source, findings_of, unsafe)
        except (SourceError, InternalError) as error:
            return Outcome(checked, problem=str(error))
        if fixed.problem or fixed.data is None:
            return Outcome(checked, problem=fixed.problem)
        return Outcome(latest, fixed.data, fixed.applied)

    return Transform(apply, "not fixed")


def ignoring(reason: str) -> Transform:
    """Silence every finding by a comment at its line, with ``reason`` behind it."""

    def apply(checked: Checked, source: Source, recheck: Recheck) -> Outcome:
        try:
            commented, data = with_edits(source, ignore_edits(source, checked.findings, reason))
        except SourceError as error:
            return Outcome(checked, problem=str(error))
        left = recheck(commented)
        silenced = _codes(checked.findings) - _codes(left.findings)
        return Outcome(left, data, silenced) if silenced else Outcome(checked)

    return Transform(apply, "not changed")


def _codes(findings: Iterable[Finding]) -> Counter[str]:
    return Counter(finding.code for finding in findings)
