"""What one run of the linter found, in the form every output format reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..sources.error import SourceError
from ..sources.lines import split_lines
from ..sources.source import read_source

if TYPE_CHECKING:
    from ..analysis.result import FileResult
    from ..finding import Finding


class Report(NamedTuple):
    """The findings of a run, in the order they are printed."""

    findings: tuple[Finding, ...]
    #: One line for each file that could not be checked, and for each fix that could not be stored.
    failures: tuple[str, ...] = ()
    #: How many files were checked.
    files: int = 0
    #: How many fixes were applied.
    fixed: int = 0
    #: Only findings are printed, no closing line.
    quiet: bool = False
    #: Contents that cannot be read again from disk (standard input), by filename.
    contents: tuple[tuple[str, bytes], ...] = ()


def build_report(results: list[FileResult], contents: tuple[tuple[str, bytes], ...] = ()) -> Report:
    """Join the results of all files, findings in the order of files and lines."""
    return Report(
        findings=tuple(finding for result in results for finding in result.findings),
        failures=tuple(result.failure for result in results if result.failure),
        files=len(results),
        contents=contents,
    )


class Excerpts:
    """The text behind the findings, read when an output format quotes it."""

    def __init__(self, report: Report) -> None:
        self._contents = dict(report.contents)
        self._lines: dict[tuple[str, int | None], list[str]] = {}

    def lines(self, filename: str, cell: int | None = None) -> list[str]:
        """The lines of a file, or of one cell of a notebook; empty when it cannot be read any more."""
        key = (filename, cell)
        if key not in self._lines:
            lines = self._read(filename, cell)
            self._lines[key] = lines[:-1] if lines and not lines[-1] else lines
        return self._lines[key]

    def data(self, filename: str) -> bytes:
        """The bytes of a file; none when it cannot be read any more."""
        known = self._contents.get(filename)
        if known is not None:
            return known
        try:
            with open(filename, "rb") as file:
                return file.read()
        except OSError:
            return b""

    def _read(self, filename: str, cell: int | None) -> list[str]:
        data = self.data(filename)
        try:
            source = read_source(filename, data)
        except SourceError:
            return []
        if source.notebook is None:
            return split_lines(source.shown)
        text = next((entry.text for entry in source.notebook.cells if entry.number == cell), source.text)
        return split_lines(text)


def relative(filename: str) -> str:
    """``filename`` relative to the working directory, with ``/``, as CI systems want it."""
    return os.path.relpath(filename).replace(os.sep, "/")
