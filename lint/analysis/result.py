"""What comes out of one file, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..finding import Finding
    from ..sources.source import Source


class FileResult(NamedTuple):
    """What came out of one file; positions are those a user counts (per cell in a notebook)."""

    filename: str
    findings: tuple[Finding, ...] = ()
    #: Why the file could not be checked though it is fine: a fault of ours or of the file system; None otherwise.
    failure: str | None = None
    #: The other files that the findings depend on, the items of ``LocalModules.consulted``.
    consulted: tuple[tuple[str, str | None], ...] = ()
    #: What the run that this file starts makes a mistake in modules it imports, their suppressions not applied.
    elsewhere: tuple[Finding, ...] = ()


class Checked(NamedTuple):
    """A file after its check, handed on to what changes it, so that nothing is analysed again."""

    result: FileResult
    #: None when nothing in the file had to be analysed.
    source: Source | None = None
    #: All that was found in the file, in the coordinates of ``source.text``; selection and comments not applied.
    analysed: tuple[Finding, ...] = ()
    #: What ``result`` reports, in the coordinates of ``source.text``.
    findings: tuple[Finding, ...] = ()


class InternalError(Exception):
    """The analysis itself failed on a file; ``str()`` is one line for the user."""
