"""Fixes to text: which can be applied together, and what comes out. Touches no disk."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from ..configs import is_config, is_launch
from ..configs.reading import parses
from ..finding import Applicability, Edit, Finding, Fix
from ..sources.error import SourceError
from ..sources.source import Source, with_edits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: ruff's bound: a set of fixes that needs more rounds is a set of fixes that undo each other.
MAX_ROUNDS = 10


class FixResult(NamedTuple):
    """A file after its fixes. ``source`` and ``data`` are the originals when nothing could be applied."""

    source: Source
    #: The bytes to store; None when the file stays as it is.
    data: bytes | None
    #: How many fixes of each code were applied.
    applied: Counter[str]
    #: Why the file was left as it was, though it has fixes; None otherwise.
    problem: str | None = None


def applicable(finding: Finding, unsafe: bool) -> Fix | None:
    """The finding's fix if ``--fix`` (or, with ``unsafe``, ``--unsafe-fixes``) may apply it."""
    allowed = (Applicability.SAFE, Applicability.UNSAFE) if unsafe else (Applicability.SAFE,)
    return finding.fix if finding.fix is not None and finding.fix.applicability in allowed else None


def compatible(findings: Iterable[Finding], unsafe: bool) -> list[tuple[Finding, Fix]]:
    """The fixes that can be applied in one pass: no edit of one touches an edit of another.

    Two fixes may share an edit (both insert the same import); it is then applied once.
    """
    chosen: list[tuple[Finding, Fix]] = []
    taken: list[Edit] = []
    for finding in findings:
        fix = applicable(finding, unsafe)
        if fix is None or not fix.edits:
            continue
        if any(_conflict(edit, other) for edit in fix.edits for other in taken):
            continue
        if any(_overlap(edit, other) for edit, other in combinations(fix.edits, 2)):
            continue  # its own edits contradict each other
        chosen.append((finding, fix))
        taken += fix.edits
    return chosen


def _conflict(a: Edit, b: Edit) -> bool:
    """Whether edits of two fixes cannot both be applied: which of two insertions comes first is anybody's guess."""
    return a != b and (a.span[:2] == b.span[:2] or _overlap(a, b))


def _overlap(a: Edit, b: Edit) -> bool:
    return a.span[:2] < b.span[2:] and b.span[:2] < a.span[2:]


def fix_source(source: Source, check: Callable[[Source], list[Finding]], unsafe: bool) -> FixResult:
    """Apply fixes, round after round, until none is left.

    The result parses, or the file is left as it was; the same holds when the fixes do not converge.

    Args:
        source: The text to change.
        check: Gives the findings in a text, whose fixes are applied.
        unsafe: Whether to apply also those fixes that may change what the program does.
    """
    applied: Counter[str] = Counter()
    fixed, data = source, None
    for _ in range(MAX_ROUNDS):
        chosen = compatible(check(fixed), unsafe)
        if not chosen:
            return FixResult(fixed, data, applied)
        try:
            fixed, data = with_edits(fixed, [edit for _, fix in chosen for edit in fix.edits])
        except SourceError as error:
            return FixResult(source, None, Counter(), str(error))
        if not _parses(fixed):
            codes = ", ".join(sorted({finding.code for finding, _ in chosen}))
            language = "YAML or JSON" if is_config(source.filename) else "Python"
            return FixResult(source, None, Counter(), f"the fixes of {codes} would not leave valid {language}")
        applied.update(finding.code for finding, _ in chosen)
    codes = ", ".join(sorted(applied))
    return FixResult(source, None, Counter(), f"the fixes of {codes} did not come to an end in {MAX_ROUNDS} rounds")


def _parses(source: Source) -> bool:
    if is_config(source.filename):
        return parses(source.filename, source.text)
    if is_launch(source.filename):
        return True  # nothing but our own comments is ever changed there
    try:
        ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
