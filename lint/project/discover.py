"""Which files to read: paths given on the command line to a sorted list of files."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from ..configs import CONFIG_SUFFIXES, LAUNCH_SUFFIXES, is_settings
from ..sources.source import MARKDOWN_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .gitignore import Ignored
    from .settings import Settings

#: Kinds of file that a folder is searched for. A file named on the command line is read whatever it is called.
SUFFIXES = (".py", ".ipynb", *CONFIG_SUFFIXES, *LAUNCH_SUFFIXES)
#: Bytes; a larger YAML, JSON or shell file found in a folder is data.
LARGEST_CONFIG = 100_000
#: Folders that never hold the user's own code (ruff's defaults).
SKIPPED_FOLDERS = frozenset(
    {
        ".bzr",
        ".direnv",
        ".eggs",
        ".git",
        ".git-rewrite",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pants.d",
        ".pyenv",
        ".pytest_cache",
        ".pytype",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        ".vscode",
        "__pycache__",
        "__pypackages__",
        "_build",
        "buck-out",
        "build",
        "dist",
        "node_modules",
        "site-packages",
        "venv",
    }
)


class Found(NamedTuple):
    """The files to read, and what was said on the command line that led nowhere."""

    files: tuple[str, ...]
    #: Paths that do not exist.
    missing: tuple[str, ...]


def discover(paths: Iterable[str], settings_for: Callable[[str], Settings]) -> Found:
    """The files that ``paths`` mean; ``settings_for`` gives the settings that hold in a directory."""
    files: dict[str, str] = {}
    missing: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            if not _skip_named(path, settings_for):
                for file in _walk(path, settings_for, _ignored(path, settings_for)):
                    files.setdefault(os.path.abspath(file), file)
        elif os.path.exists(path):
            if not _skip_named(path, settings_for):
                files.setdefault(os.path.abspath(path), path)
        else:
            missing.append(path)
    return Found(tuple(files.values()), tuple(missing))


def _skip_named(path: str, settings_for: Callable[[str], Settings]) -> bool:
    """Whether ``--force-exclude`` drops a path that was named on the command line."""
    settings = settings_for(os.path.dirname(path) or ".")
    if not settings.force_exclude:
        return False
    relative = _relative(path, settings.root)
    parts = relative.split("/")
    if any(part in SKIPPED_FOLDERS for part in parts[:-1]):
        return True
    return any(excluded("/".join(parts[: end + 1]), settings.exclude) for end in range(len(parts)))


def _ignored(top: str, settings_for: Callable[[str], Settings]) -> Ignored | None:
    """What git ignores in the folder ``top``; None when that does not count."""
    if not settings_for(top).respect_gitignore:
        return None
    from .gitignore import ignored_in  # start-up: files that are named are not searched for

    return ignored_in(top)


def _walk(top: str, settings_for: Callable[[str], Settings], ignored: Ignored | None) -> Iterator[str]:
    settings = settings_for(top)
    suffixes = (*SUFFIXES, *MARKDOWN_SUFFIXES) if settings.markdown else SUFFIXES
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        name = entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if name in SKIPPED_FOLDERS if is_folder else not name.endswith(suffixes):
            continue
        path = name if top == "." else os.path.join(top, name)
        if settings.exclude and excluded(_relative(path, settings.root), settings.exclude):
            continue
        if ignored is not None and ignored.lists and ignored.covers(os.path.abspath(path), is_folder):
            continue
        if is_folder:
            inner = ignored.within(os.path.abspath(path)) if ignored is not None else None
            yield from _walk(path, settings_for, inner)
        elif _is_checked(entry):
            yield path


def _is_checked(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, no device, and no configuration too large to be one; a link to itself is none of them."""
    try:
        return entry.is_file() and not (is_settings(entry.name) and entry.stat().st_size > LARGEST_CONFIG)
    except OSError:
        return False


def excluded(relative: str, patterns: Iterable[str]) -> bool:
    """Whether a path, relative to the settings' root and with ``/``, matches one of ``patterns``.

    A pattern without ``/`` is compared with the last part of the path, one with ``/`` with the whole path (``*`` and
    ``**`` match any text, also across folders; a trailing ``/`` or ``/**`` means the folder and all below).
    """
    name = relative.rpartition("/")[2]
    for pattern in patterns:
        whole = pattern.removeprefix("./")
        folder = whole.removesuffix("**").rstrip("/")
        if "/" not in whole and fnmatchcase(name, whole):
            return True
        if fnmatchcase(relative, whole) or fnmatchcase(relative, folder) or fnmatchcase(relative, f"{folder}/*"):
            return True
    return False


def _relative(path: str, root: str) -> str:
    return os.path.relpath(os.path.abspath(path), root).replace(os.sep, "/")
