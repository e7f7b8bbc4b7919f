"""What git ignores: `.gitignore` files and the repository's own list, read as a walk comes to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from pathspec import GitIgnoreSpec

_NAME = ".gitignore"


class Patterns(NamedTuple):
    """One list of patterns."""

    spec: GitIgnoreSpec
    #: Those of the patterns: most paths match none of them, which takes a third of the time to see that `spec` takes.
    expressions: tuple[re.Pattern[str], ...]

    def said_of(self, relative: str) -> bool | None:
        """Whether ``relative``, with a trailing ``/`` for a folder, is ignored; None when no pattern is about it."""
        for expression in self.expressions:
            if expression.match(relative):
                return self.spec.check_file(relative).include
        return None


class Ignored(NamedTuple):
    """The patterns that hold in a folder, those of the folders around it included."""

    #: The folder that patterns are relative to, absolute, and the patterns; those that win come first.
    lists: tuple[tuple[str, Patterns], ...] = ()

    def within(self, folder: str) -> Ignored:
        """What holds in ``folder``, an absolute path, one level below."""
        patterns = _read(os.path.join(folder, _NAME))
        return self if patterns is None else Ignored(((folder, patterns), *self.lists))

    def covers(self, path: str, is_folder: bool) -> bool:
        """Whether git ignores ``path``, an absolute path in this folder; a folder that is covered is not entered."""
        for folder, patterns in self.lists:
            relative = path[len(folder) :].replace(os.sep, "/").lstrip("/")
            said = patterns.said_of(f"{relative}/" if is_folder else relative)
            if said is not None:
                return said
        return False


def ignored_in(folder: str) -> Ignored:
    """What holds in ``folder``: the patterns of its repository down to it.

    A folder that is ignored itself was asked for by name, so what ignores it does not count in it.
    """
    folder = os.path.abspath(folder)
    ignored = Ignored()
    for around in _folders_down_to(folder):
        ignored = Ignored() if ignored.covers(around, is_folder=True) else ignored
        if os.path.exists(os.path.join(around, ".git")):
            own = _read(os.path.join(around, ".git", "info", "exclude"))
            ignored = Ignored(((around, own),)) if own is not None else ignored
        ignored = ignored.within(around)
    return ignored


def _folders_down_to(folder: str) -> Iterator[str]:
    """The folders from the root of the repository to ``folder``; only ``folder`` itself when there is none."""
    found = [folder]
    while not os.path.exists(os.path.join(found[-1], ".git")):
        above = os.path.dirname(found[-1])
        if above == found[-1]:
            return iter((folder,))
        found.append(above)
    return reversed(found)


def _read(path: str) -> Patterns | None:
    """The patterns in the file at ``path``; None when there are none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = [line for line in file.read().splitlines() if line.strip() and not line.startswith("#")]
    except OSError:
        return None
    if not lines:
        return None
    # Start-up: a walk that meets no such file does not pay for the library.
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(lines)
    except ValueError:
        spec = GitIgnoreSpec.from_lines(line for line in lines if _is_pattern(GitIgnoreSpec, line))
    return Patterns(spec, tuple(pattern.regex for pattern in spec.patterns if pattern.regex is not None))


def _is_pattern(spec: type[GitIgnoreSpec], line: str) -> bool:
    """Whether ``line`` can be read; like git, one that cannot does not spoil the others."""
    try:
        spec.from_lines([line])
    except ValueError:
        return False
    return True
