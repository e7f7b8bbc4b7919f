"""``--baseline``: report only what is new. Known findings stand in a file that shrinks as they are repaired.

An entry is a code and the source line it was found on, not a line number, so code may move around it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ...whole_file import write_whole
from ..output.report import Excerpts, build_report
from .settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..analysis.result import FileResult
    from ..finding import Finding

_VERSION = 1
#: A finding as the baseline knows it: code and stripped source line.
Entry = tuple[str, str]


class Baseline(NamedTuple):
    """Known findings by file; paths are relative to the baseline file, with ``/``."""

    path: str
    files: dict[str, Counter[Entry]]


def compare(path: str, results: list[FileResult], write: bool) -> list[FileResult]:
    """The results without the findings that a baseline file knows.

    Repaired findings leave the file, except on a CI machine, where it is only read.

    Args:
        path: The baseline file.
        results: What came out of each file.
        write: Whether to make everything known that was found now.

    Raises:
        SettingsError: The file is missing, is no baseline, or cannot be written.
    """
    if write:
        write_baseline(baseline_of(path, results))
        return [result._replace(findings=()) for result in results]
    known = read_baseline(path)
    left, shrunk = subtract(known, results)
    if shrunk != known and not os.environ.get("CI"):
        write_baseline(shrunk)
    return left


def read_baseline(path: str) -> Baseline:
    """Read a baseline file.

    Raises:
        SettingsError: There is none at ``path``, or it is no baseline.
    """
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document["version"] != _VERSION:
            raise SettingsError(f"{path}: baseline version {document['version']} is not known; write it again")
        files = {name: Counter((e["code"], e["line"]) for e in entries) for name, entries in document["files"].items()}
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: no such baseline; `--write-baseline` writes it") from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SettingsError(f"{path}: not a baseline of ckpt-lint; `--write-baseline` writes one") from error
    return Baseline(path, files)


def write_baseline(baseline: Baseline) -> None:
    """Store a baseline, sorted, one entry a line, so that changes to it can be reviewed.

    Raises:
        SettingsError: The file cannot be written.
    """
    files = {
        name: [{"code": code, "line": line} for code, line in sorted(entries.elements())]
        for name, entries in sorted(baseline.files.items())
        if entries
    }
    text = json.dumps({"version": _VERSION, "files": files}, indent=1, ensure_ascii=False)
    try:
        write_whole(baseline.path, f"{text}\n".encode(errors="backslashreplace"))
    except OSError as error:
        raise SettingsError(f"{baseline.path}: cannot be written: {error.strerror}") from error


def baseline_of(path: str, results: Iterable[FileResult]) -> Baseline:
    """The baseline, to be stored at ``path``, under which none of ``results`` is reported."""
    results = list(results)
    excerpts = Excerpts(build_report(results))
    files = {_name(path, r.filename): Counter(_entry(f, excerpts) for f in r.findings) for r in results if r.findings}
    return Baseline(path, files)


def subtract(baseline: Baseline, results: list[FileResult]) -> tuple[list[FileResult], Baseline]:
    """``results`` without the known findings, and the baseline without entries that are gone from checked files."""
    excerpts = Excerpts(build_report(results))
    files = dict(baseline.files)
    new: list[FileResult] = []
    for result in results:
        name = _name(baseline.path, result.filename)
        known = Counter(baseline.files.get(name, ()))
        left: list[Finding] = []
        for finding in result.findings:
            entry = _entry(finding, excerpts)
            if known[entry] > 0:
                known[entry] -= 1
            else:
                left.append(finding)
        if name in files and not result.failure:
            files[name] = baseline.files[name] - known
        new.append(result._replace(findings=tuple(left)))
    return new, Baseline(baseline.path, files)


def _entry(finding: Finding, excerpts: Excerpts) -> Entry:
    lines = excerpts.lines(finding.filename, finding.cell)
    row = finding.span.line
    return finding.code, lines[row - 1].strip() if row <= len(lines) else ""


def _name(path: str, filename: str) -> str:
    return os.path.relpath(os.path.abspath(filename), os.path.dirname(os.path.abspath(path))).replace(os.sep, "/")
