"""Many files as one project: what the run of one file makes a mistake in another is reported there, once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..project.local_modules import LocalModules
from ..sources.error import SourceError
from ..sources.source import read_source
from .check_file import check_loaded, with_more

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..finding import Finding
    from .job import Job
    from .result import FileResult


def merge_cross_file(jobs: list[Job], results: list[FileResult]) -> list[FileResult]:
    """``results`` of ``jobs``, each with the findings that the runs of the other files show in it."""
    news = findings_from_elsewhere(results)
    for position, found in news.items():
        results[position] = _checked_again(jobs[position], results[position], found)
    return results


def findings_from_elsewhere(results: list[FileResult]) -> dict[int, list[Finding]]:
    """By position in ``results``: the findings in a file that other files know of and it does not show by itself."""
    positions = {os.path.abspath(result.filename): position for position, result in enumerate(results)}
    found: dict[int, dict[tuple[object, ...], Finding]] = {}
    for finding in (finding for result in results for finding in result.elsewhere):
        position = positions.get(os.path.abspath(finding.filename))
        if position is None:
            continue
        here, place = found.setdefault(position, {}), (finding.code, finding.span)
        known = here.setdefault(place, finding)
        # What one run makes certain is no note because another one leaves it open.
        if known.condition is not None and finding.condition is None:
            here[place] = finding
    return {position: news for position in sorted(found) if (news := list(_new(results[position], found[position])))}


def _new(result: FileResult, found: dict[tuple[object, ...], Finding]) -> Iterator[Finding]:
    shown = {(finding.code, finding.span) for finding in result.findings if finding.condition is None}
    if result.failure is None:
        yield from (_named(finding, result.filename) for place, finding in found.items() if place not in shown)


def _named(finding: Finding, filename: str) -> Finding:
    """``finding`` with its file called as the user called it."""
    notes = tuple(
        note._replace(filename=filename) if note.filename == finding.filename else note for note in finding.notes
    )
    return finding._replace(filename=filename, notes=notes)


def _checked_again(job: Job, result: FileResult, more: Iterable[Finding]) -> FileResult:
    """The result of a file with what other runs show in it: its own comments silence that too."""
    try:
        with open(job.path, "rb") as file:
            source = read_source(job.path, file.read())
    except (OSError, SourceError) as error:
        return result._replace(failure=f"{job.path}: {error}")
    checked = with_more(check_loaded(source, job, LocalModules(job.path)), job, more).result
    return result._replace(findings=checked.findings, failure=checked.failure)
