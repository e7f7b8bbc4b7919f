"""Finding on disk the modules of a project that a file imports."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from zlib import crc32

from ..facts.imported.local import LocalModule
from ..sources.error import SourceError
from ..sources.source import read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Larger files are data or generated.
_LARGEST = 100_000


class LocalModules:
    """Finds what the names imported by the file at ``filename`` mean next to it, and remembers where it looked."""

    __slots__ = ("_folder", "_top", "_unsaved", "consulted")

    def __init__(self, filename: str, unsaved: Mapping[str, bytes] | None = None) -> None:
        #: Contents that hold instead of those on disk, by absolute path.
        self._unsaved = unsaved or {}
        self._folder = os.path.dirname(os.path.abspath(filename))
        self._top = _import_root(self._folder)
        #: Every path looked at: a hash of what stood there, None for nothing.
        self.consulted: dict[str, str | None] = {}

    def __call__(self, name: str) -> LocalModule | None:
        """The module called ``name`` in the file, leading dots included; None when it is not the project's."""
        stripped = name.lstrip(".")
        level = len(name) - len(stripped)
        parts = stripped.split(".")
        if level:
            return self._load(os.path.join(_parent(self._folder, level - 1), *parts))
        found = (self._load(os.path.join(folder, *parts)) for folder in self._roots(parts[0]))
        return next((module for module in found if module is not None), None)

    def _roots(self, name: str) -> Iterator[str]:
        """The folders where ``name`` may be, those that Python surely looks in first."""
        # A script finds its neighbours, a module of a package what its distribution holds.
        first = dict.fromkeys((self._folder, self._top))
        yield from first
        # Projects start their scripts from above (`python -m tools.train`), and leave out `__init__.py`.
        above = [_above(self._folder, name)]
        if len(first) == 1 and name not in sys.stdlib_module_names:
            above.append(os.path.dirname(self._folder))
        yield from dict.fromkeys(folder for folder in above if folder is not None and folder not in first)

    def _load(self, stem: str) -> LocalModule | None:
        for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            data = self._unsaved.get(path) or _read(path)
            self.consulted[path] = _digest(data)
            if data is not None:
                try:
                    return LocalModule(os.path.relpath(path), read_source(path, data).text)
                except (SourceError, ValueError):
                    return None
        return None


def unchanged(consulted: Mapping[str, str | None]) -> bool:
    """Whether everything a ``LocalModules`` looked at is as it was."""
    return all(_digest(_read(path)) == digest for path, digest in consulted.items())


def _read(path: str) -> bytes | None:
    try:
        if not os.access(path, os.R_OK):  # most paths lead nowhere, and to open them takes five times as long
            return None
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= _LARGEST else None


def _digest(data: bytes | None) -> str | None:
    # hashlib would cost a third of what a whole file costs to check.
    return None if data is None else f"{len(data)}-{crc32(data):08x}"


def _import_root(folder: str) -> str:
    """The folder from which the package that holds ``folder`` is imported."""
    while os.path.exists(os.path.join(folder, "__init__.py")):
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return folder


def _above(folder: str, name: str) -> str | None:
    """The folder that holds the one called ``name`` which ``folder`` is in or is; None where there is none."""
    while os.path.basename(folder):
        if os.path.basename(folder) == name:
            return os.path.dirname(folder)
        folder = os.path.dirname(folder)
    return None


def _parent(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder
