"""Checking one file: bytes in, findings out; nothing that happens in a file stops the others."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..configs import is_config, is_launch, is_settings
from ..prefilter.file_gate import gate, names_us
from ..sources.source import Source, SourceError, read_source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..facts.local import FindModule
    from ..finding import Finding, Span
    from ..project.settings import Settings

UNPARSABLE_CODE, UNPARSABLE_NAME = "CKPT903", "unparsable-file"


class FileResult(NamedTuple):
    """What came out of one file."""

    filename: str
    findings: tuple[Finding, ...] = ()
    #: Why the file could not be checked though it is fine: a fault of ours or of the file system; None otherwise.
    failure: str | None = None
    #: The other files that the findings depend on, the items of ``LocalModules.consulted``.
    consulted: tuple[tuple[str, str | None], ...] = ()
    #: What the run that this file starts makes a mistake in modules it imports, their suppressions not applied.
    elsewhere: tuple[Finding, ...] = ()


class InternalError(Exception):
    """The analysis itself failed on a file; ``str()`` is one line for the user."""


def check_path(path: str, settings: Settings, reported: Collection[str] = ()) -> FileResult:
    """Check the file at ``path``; the findings in modules it imports count for those in ``reported`` (absolute)."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return FileResult(path, failure=f"{path}: cannot be read: {error.strerror or error}")
    return check_bytes(path, data, settings, reported)


def check_bytes(filename: str, data: bytes, settings: Settings, reported: Collection[str] = ()) -> FileResult:
    """Check ``data``, the content of ``filename``; positions are those a user counts (per cell in a notebook)."""
    gated = gate(filename, data, settings)
    if not gated.needed and not settings.runs:
        return FileResult(filename, consulted=gated.consulted)
    try:
        source = read_source(filename, data)
    except SourceError as error:
        codes = _enabled(filename, settings)
        return FileResult(filename, (_unreadable(filename, error),) if UNPARSABLE_CODE in codes else ())
    from ..project.local_modules import LocalModules

    modules = LocalModules(filename)
    result = check_text(source, settings, modules, reported)
    return result._replace(consulted=tuple(modules.consulted.items()))


def check_text(
    source: Source, settings: Settings, find_module: FindModule | None = None, reported: Collection[str] = ()
) -> FileResult:
    """Check a text that is read already; ``find_module`` gives the modules of the project that it imports."""
    try:
        found = _analyse(source, settings, find_module, reported)
    except InternalError as error:
        return FileResult(source.filename, failure=str(error))
    here = tuple(finding for finding in found if finding.filename == source.filename)
    elsewhere = tuple(finding for finding in found if finding.filename != source.filename)
    left = _selected(source, settings, here)
    if source.notebook is not None:
        from ..sources.notebook import notes_to_cells, to_cell

        left = [to_cell(source.notebook, finding) for finding in left]
        elsewhere = tuple(notes_to_cells(source.notebook, source.filename, finding) for finding in elsewhere)
    return FileResult(source.filename, tuple(left), elsewhere=elsewhere)


def check(
    source: Source, settings: Settings, find_module: FindModule | None = None, more: Iterable[Finding] = ()
) -> list[Finding]:
    """The findings of one source, selected and not suppressed, in its own coordinates. Raises InternalError.

    ``more`` are findings in it that only the run of another file shows.
    """
    found = [*_analyse(source, settings, find_module), *more]
    return _selected(source, settings, {(finding.code, finding.span): finding for finding in reversed(found)}.values())


def _selected(source: Source, settings: Settings, analysed: Iterable[Finding]) -> list[Finding]:
    found = [*analysed, *_bad_cells(source)]
    if not found and not names_us(source.text):
        return []
    from ..configs.comments import comments_of
    from ..suppressions.comments import read_suppressions, suppress, unused

    if _has_selectors(settings):
        codes = _enabled(source.filename, settings)
        found = [finding for finding in found if finding.code in codes]
    suppressions = comments_of(source) if is_settings(source.filename) else read_suppressions(source.text)
    left, used = suppress(found, suppressions)
    if suppressions.comments and names_us(source.text):
        codes = _enabled(source.filename, settings)
        idle = unused(source.filename, suppressions, used, _judged(source, codes), source.text)
        left += suppress((finding for finding in idle if finding.code in codes), suppressions)[0]
    return sorted(left, key=lambda finding: (finding.span, finding.code))


def _has_selectors(settings: Settings) -> bool:
    """Whether anything but the default rules is asked for; every rule must be known to tell which."""
    return settings.select is not None or bool(settings.ignore or settings.per_file_ignores)


def _analyse(
    source: Source, settings: Settings, find_module: FindModule | None, reported: Collection[str] = ()
) -> list[Finding]:
    from ..project.library_versions import versions_of
    from .check_text import check_source

    def is_reported(imported: str) -> bool:
        return os.path.abspath(imported) in reported

    try:
        versions = {**versions_of(source.text, source.filename), **dict(settings.versions)}
        # Rules that are off by default run only when they are selected; what is left out is left out afterwards.
        select = None if settings.select is None else _enabled(source.filename, settings).__contains__
        if settings.runs or is_config(source.filename):
            from ..configs.check import check_in_runs

            return check_in_runs(source, settings.runs, select, dict(settings.versions), is_reported)
        if is_launch(source.filename):
            return []  # by itself, as an editor gives it, it names files that nobody read
        check_it = partial(
            check_source,
            filename=source.filename,
            select=select,
            versions=versions,
            find_module=find_module,
            reported=is_reported,
        )
        if source.markdown is None:
            return check_it(source.text)
        from ..sources.markdown import check_blocks

        return check_blocks(source.markdown, check_it)
    except (Exception, RecursionError, MemoryError) as error:
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        raise InternalError(
            f"{source.filename}: not checked, internal error of ckpt-lint ({detail}); please report it"
        ) from error


def _bad_cells(source: Source) -> list[Finding]:
    if source.notebook is None:
        return []
    from ..finding import Span
    from ..sources.notebook import unparsable_cells

    message = "this cell is not valid Python, so it was not checked"
    return [
        _tool_finding(source.filename, Span(cell.start + 1, 1, cell.start + 1, 1), message)
        for cell in unparsable_cells(source.notebook)
    ]


def _enabled(filename: str, settings: Settings) -> frozenset[str]:
    from ..project.selection import enabled_codes

    relative = os.path.relpath(os.path.abspath(filename), settings.root).replace(os.sep, "/")
    return enabled_codes(settings, relative)


def _judged(source: Source, codes: frozenset[str]) -> frozenset[str]:
    """Codes and names whose suppressions can be called unused.

    A comment for a rule that this file gives a part of what it looks for may be needed under a script that imports it.
    """
    from ..catalogue.rules import all_rules
    from ..prefilter.candidates import named_in_part

    open_codes = frozenset() if is_settings(source.filename) else named_in_part(source.text)
    judged = [rule for rule in all_rules() if rule.code in codes and rule.code not in open_codes]
    return frozenset(word for rule in judged for word in (rule.code, rule.name))


def _unreadable(filename: str, error: SourceError) -> Finding:
    from ..finding import Span

    span = Span(error.line, error.column, error.line, error.column)
    return _tool_finding(filename, span, f"{error}, so nothing in this file was checked")


def _tool_finding(filename: str, span: Span, message: str) -> Finding:
    # A clean file pays for the enumerations of a finding otherwise.
    from ..finding import Finding, Severity

    return Finding(UNPARSABLE_CODE, UNPARSABLE_NAME, Severity.ERROR, message, filename, span)
