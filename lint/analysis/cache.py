"""Results of earlier runs, by content: a file is checked again only when something its findings depend on changed.

The key of a result is a hash of the bytes of the file, its name, the settings and library versions that hold for it,
and the linter's own code; with it are stored the hashes of the local modules that were read, and which of them were
checked too. There is no other condition, so a cached run reports what a fresh one would.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ...whole_file import write_whole
from ..finding import Applicability, Edit, Finding, Fix, Note, Severity, Span
from ..project.library_versions import project_ranges
from ..project.local_modules import unchanged
from .result import FileResult

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..project.settings import Settings

_FILE = "results.json"
_FORMAT = 4
#: Old results kept beside those of the last run.
_MOST_ENTRIES = 100_000


class Cache:
    """The results stored in one folder. Read once, written once; a folder that cannot be used is no cache."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._tool = _fingerprint()
        self._entries: dict[str, Any] = self._load()
        self._new: dict[str, Any] = {}

    def key(self, filename: str, data: bytes, settings: Settings, named: bool = False) -> str:
        """The hash of everything that the findings in ``filename`` depend on."""
        absolute = os.path.abspath(filename)
        ranges = sorted(project_ranges(os.path.dirname(absolute)).items())
        facts = (self._tool, filename, absolute, settings, ranges, named)
        return blake2b(data, digest_size=16, key=blake2b(repr(facts).encode()).digest()).hexdigest()

    def get(self, key: str, filename: str, reported: Collection[str] = ()) -> FileResult | None:
        """The stored result for ``key``, when the same of the modules it imports are ``reported``; None otherwise."""
        found = self._new.get(key, self._entries.get(key))
        if found is None:
            return None
        try:
            here, consulted, elsewhere, wanted = found
            if consulted and (wanted != _among(consulted, reported) or not _unchanged(consulted)):
                return None
            findings, others = (tuple(map(_finding, records)) for records in (here, elsewhere))
            return FileResult(filename, findings, consulted=tuple(consulted.items()), elsewhere=others)
        except (TypeError, ValueError, KeyError, AttributeError):
            return None

    def put(self, key: str, result: FileResult, reported: Collection[str] = ()) -> None:
        """Remember ``result``, unless it is a failure: those are tried again."""
        if result.failure is None:
            consulted = dict(result.consulted)
            self._new[key] = [result.findings, consulted, result.elsewhere, _among(consulted, reported)]

    def save(self) -> None:
        """Store what is new; does nothing where the folder cannot be written."""
        if not self._new:
            return
        kept = self._entries if len(self._entries) + len(self._new) <= _MOST_ENTRIES else {}
        try:
            os.makedirs(self._folder, exist_ok=True)
            write_whole(os.path.join(self._folder, ".gitignore"), b"*\n")
            text = json.dumps({"format": _FORMAT, "tool": self._tool, "results": {**kept, **self._new}})
            write_whole(os.path.join(self._folder, _FILE), text.encode())
        except OSError:
            return

    def _load(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder, _FILE), encoding="utf-8") as file:
                document = json.load(file)
            if document["format"] == _FORMAT and document["tool"] == self._tool:
                return dict(document["results"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return {}


def _among(consulted: dict[str, str | None], reported: Collection[str]) -> list[str]:
    return [path for path in consulted if path in reported]


def _unchanged(consulted: dict[str, str | None]) -> bool:
    return unchanged(consulted)


def _fingerprint() -> str:
    """A hash of the linter's own files: names, sizes and times of change."""
    found: list[tuple[str, int, int]] = []
    for folder, folders, names in os.walk(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                found.append((os.path.join(folder, name), status.st_size, status.st_mtime_ns))
    return blake2b(repr(found).encode(), digest_size=16).hexdigest()


def _finding(record: Any) -> Finding:
    """A finding from the lists that JSON makes of its tuples."""
    code, name, severity, message, filename, span, notes, fix, versions, cell, condition = record
    return Finding(
        code,
        name,
        Severity(severity),
        message,
        filename,
        Span(*span),
        tuple(Note(where, Span(*place), text, inside) for where, place, text, inside in notes),
        None if fix is None else _fix(fix),
        versions,
        cell,
        condition,
    )


def _fix(record: Any) -> Fix:
    applicability, message, edits = record
    changes = tuple(Edit(Span(*span), content) for span, content in edits)
    return Fix(Applicability(applicability), message, changes)
