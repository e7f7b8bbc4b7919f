"""One way to rewrite files, for ``--fix`` and ``--add-ignore``: a checked file is handed on, not analysed again.

In each file first what it shows by itself is changed, then what the runs of the other files show in it.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ..analysis.check_file import check_bytes, check_loaded, with_more
from ..analysis.cross_file import findings_from_elsewhere
from ..analysis.result import Checked, FileResult
from ..project.local_modules import LocalModules
from ..sources.error import SourceError
from ..sources.source import Source, encode, read_source
from .replace import replace_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..analysis.job import Job
    from ..finding import Finding
    from .transforms import Recheck, Transform


class Rewritten(NamedTuple):
    """One file after its rewrite."""

    #: What is left in it.
    checked: Checked
    before: bytes
    #: Equal to ``before`` when nothing was changed.
    after: bytes
    #: How many findings of each code were dealt with.
    applied: Counter[str]

    @property
    def result(self) -> FileResult:
        """What is left to report."""
        return self.checked.result


def rewrite_all(jobs: list[Job], transform: Transform, store: bool) -> list[Rewritten]:
    """Rewrite files. Failures are in the results, nothing is raised.

    Args:
        jobs: The files.
        transform: Gives the new text of each.
        store: Whether to write it back.
    """
    reported = frozenset(os.path.abspath(job.path) for job in jobs)
    items = [_rewrite_path(job, transform, store, reported) for job in jobs]
    for position, news in findings_from_elsewhere([item.result for item in items]).items():
        first = items[position]
        again = _Project(jobs, items, position).rewritten(news, transform)
        if store:
            again = _stored(again, first.checked, transform)
        items[position] = again._replace(before=first.before, applied=first.applied + again.applied)
    return items


def rewrite_bytes(job: Job, data: bytes, transform: Transform, reported: Collection[str] = ()) -> Rewritten:
    """The rewritten content of the file of ``job`` and the findings that are left in it. Touches no disk.

    Args:
        job: Path and settings of the file.
        data: Its content.
        transform: Chooses the edits.
        reported: Names of files that it imports whose findings are wanted with it.
    """
    return _rewritten(check_bytes(job, data, reported), data, transform, _recheck(job, reported))


def _recheck(job: Job, reported: Collection[str]) -> Recheck:
    return lambda source: check_loaded(source, job, LocalModules(job.path), reported)


def _rewrite_path(job: Job, transform: Transform, store: bool, reported: Collection[str]) -> Rewritten:
    try:
        with open(job.path, "rb") as file:
            data = file.read()
    except OSError as error:
        result = FileResult(job.path, failure=f"{job.path}: cannot be read: {error.strerror or error}")
        return Rewritten(Checked(result), b"", b"", Counter())
    checked = check_bytes(job, data, reported)
    item = _rewritten(checked, data, transform, _recheck(job, reported))
    return _stored(item, checked, transform) if store else item


def _rewritten(checked: Checked, data: bytes, transform: Transform, recheck: Recheck) -> Rewritten:
    unchanged = Rewritten(checked, data, data, Counter())
    if checked.result.failure or checked.source is None or not checked.findings:
        return unchanged
    outcome = transform.apply(checked, checked.source, recheck)
    if outcome.problem is not None:
        return _failed(unchanged, transform, outcome.problem)
    if outcome.data is None:
        return unchanged
    return Rewritten(outcome.checked, data, outcome.data, outcome.applied)


def _failed(item: Rewritten, transform: Transform, problem: object) -> Rewritten:
    """``item`` as it was, with the cause."""
    result = item.result._replace(failure=f"{item.result.filename}: {transform.undone}: {problem}")
    return Rewritten(item.checked._replace(result=result), item.before, item.before, Counter())


def _stored(item: Rewritten, before: Checked, transform: Transform) -> Rewritten:
    """``item`` after it was written back; as the file was (``before``), with the cause, when that failed."""
    if item.after == item.before:
        return item
    try:
        replace_file(item.result.filename, item.before, item.after)
    except OSError as error:
        return _failed(item._replace(checked=before), transform, error)
    return item


class _Project:
    """The file at ``position`` among the others, all as they are after their own rewrite."""

    def __init__(self, jobs: list[Job], items: list[Rewritten], position: int) -> None:
        self._job = jobs[position]
        self._item = items[position]
        self._path = os.path.abspath(self._job.path)
        self._others = [(job, item.after) for job, item in zip(jobs, items, strict=True) if self._is_in(item.result)]

    def _is_in(self, result: FileResult) -> bool:
        return any(os.path.abspath(finding.filename) == self._path for finding in result.elsewhere)

    def rewritten(self, news: list[Finding], transform: Transform) -> Rewritten:
        """The file after the rewrite for ``news``, which other files show in it. Touches no disk."""
        data = self._item.after
        unchanged = Rewritten(self._item.checked, data, data, Counter())
        try:
            checked = self._item.checked
            if checked.source is None:
                checked = self._alone(read_source(self._job.path, data))
            return _rewritten(with_more(checked, self._job, news), data, transform, self._check)
        except SourceError as error:
            return _failed(unchanged, transform, error)

    def _alone(self, source: Source) -> Checked:
        return check_loaded(source, self._job, LocalModules(self._job.path))

    def _check(self, source: Source) -> Checked:
        return with_more(self._alone(source), self._job, list(self._shown_by_others(source)))

    def _shown_by_others(self, source: Source) -> Iterator[Finding]:
        unsaved = {self._path: encode(source, source.text)}
        for job, data in self._others:
            other = read_source(job.path, data)
            result = check_loaded(other, job, LocalModules(job.path, unsaved), {self._path}).result
            yield from (finding._replace(filename=self._job.path) for finding in result.elsewhere)


def unified_diff(filename: str, before: bytes, after: bytes) -> str:
    """The change as a unified diff, empty when there is none.

    Args:
        filename: Name in the header.
        before: Content on disk.
        after: Content after the fixes.
    """

    def lines(data: bytes) -> list[str]:
        return data.decode("utf-8", "replace").splitlines(keepends=True)

    diff = difflib.unified_diff(lines(before), lines(after), filename, filename)
    return "".join(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n" for line in diff)
