"""Fixes to many files: in each what it shows by itself, then what the runs of the other files show in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..analysis.check_file import FileResult, InternalError, check, check_text
from ..analysis.cross_file import findings_from_elsewhere
from ..project.local_modules import LocalModules
from ..sources.source import Source, SourceError, encode, read_source
from .files import Fixed, fix_path, ignore_path, replace_file, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..analysis.check_files import Job
    from ..finding import Finding


def fix_all(jobs: list[Job], unsafe: bool, store: bool) -> list[Fixed]:
    """Fix each file; with ``store`` write it back."""
    reported = frozenset(os.path.abspath(job.path) for job in jobs)
    fixed = [fix_path(job.path, job.settings, unsafe, store, reported) for job in jobs]
    for position in findings_from_elsewhere([item.result for item in fixed]):
        project = _Project(jobs, fixed, position)
        again = project.fixed(unsafe)
        if store:
            again = stored(again, jobs[position].settings, reported)
        before, applied = fixed[position].before, fixed[position].applied + again.applied
        fixed[position] = again._replace(before=before, applied=applied)
    return fixed


def ignore_all(jobs: list[Job], reason: str) -> list[Fixed]:
    """Silence every finding by a comment at its line."""
    from ..suppressions.add_ignore import add_ignores

    reported = frozenset(os.path.abspath(job.path) for job in jobs)
    ignored = [ignore_path(job.path, job.settings, reason, reported) for job in jobs]
    for position, news in findings_from_elsewhere([item.result for item in ignored]).items():
        item, path = ignored[position], jobs[position].path
        try:
            source = read_source(path, item.after)
            left = check(source, jobs[position].settings, LocalModules(path), news)
            after = add_ignores(source, left, reason)
            replace_file(path, item.after, after)
        except (OSError, SourceError, InternalError) as error:
            ignored[position] = item._replace(result=item.result._replace(failure=f"{path}: not changed: {error}"))
            continue
        for finding in left:
            item.applied[finding.code] += 1
        ignored[position] = item._replace(after=after)
    return ignored


class _Project:
    """The file at ``position`` among the others, all as they are after their own fixes."""

    def __init__(self, jobs: list[Job], fixed: list[Fixed], position: int) -> None:
        self._job = jobs[position]
        self._data = fixed[position].after
        self._path = os.path.abspath(self._job.path)
        self._others = [(job, item.after) for job, item in zip(jobs, fixed, strict=True) if self._is_in(item.result)]

    def _is_in(self, result: FileResult) -> bool:
        return any(os.path.abspath(finding.filename) == self._path for finding in result.elsewhere)

    def fixed(self, unsafe: bool) -> Fixed:
        """The file after the fixes of all that is found in it. Touches no disk."""
        from collections import Counter

        from .apply import fix_source

        name, data = self._job.path, self._data
        try:
            source = read_source(name, data)
            outcome = fix_source(source, self._check, unsafe)
            left = tuple(self._check(outcome.source))
        except (SourceError, InternalError) as error:
            return Fixed(FileResult(name, failure=f"{name}: not fixed: {error}"), data, data, Counter())
        problem = f"{name}: not fixed: {outcome.problem}" if outcome.problem else None
        return Fixed(FileResult(name, left, problem), data, outcome.data or data, outcome.applied)

    def _check(self, source: Source) -> list[Finding]:
        return check(source, self._job.settings, LocalModules(self._job.path), list(self._shown_by_others(source)))

    def _shown_by_others(self, source: Source) -> Iterator[Finding]:
        unsaved = {self._path: encode(source, source.text)}
        for job, data in self._others:
            other = read_source(job.path, data)
            result = check_text(other, job.settings, LocalModules(job.path, unsaved), {self._path})
            yield from (finding._replace(filename=self._job.path) for finding in result.elsewhere)
