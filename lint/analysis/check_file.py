"""Checking one file: bytes in, findings out; nothing that happens in a file stops the others."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from ..configs import is_config, is_launch, is_settings
from ..prefilter.file_gate import GateResult, gate, names_us
from ..sources.error import SourceError
from ..sources.source import Source, read_source
from ..tool_rules.ckpt903_unparsable_file import UNCHECKED, not_python, unparsable
from .deep import with_any_depth
from .job import STDIN
from .result import Checked, FileResult

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..facts.imported.local import FindModule
    from ..finding import Finding
    from ..project.local_modules import LocalModules
    from ..project.settings import Settings
    from .job import Job


def check_path(job: Job, reported: Collection[str] = ()) -> FileResult:
    """Check the file of ``job``; the findings in modules it imports count for those in ``reported`` (absolute)."""
    try:
        with open(job.path, "rb") as file:
            data = file.read()
    except OSError as error:
        return FileResult(job.path, failure=f"{job.path}: cannot be read: {error.strerror or error}")
    return check_bytes(job, data, reported).result


def check_bytes(job: Job, data: bytes, reported: Collection[str] = ()) -> Checked:
    """Check the content of a file. A failure is in the result, nothing is raised.

    Args:
        job: The file and the settings that hold for it.
        data: What is in the file.
        reported: Names of files that it imports whose findings are wanted with it.
    """
    return check_gated(job, data, gate(job.path, data, job.settings), reported)


def check_gated(job: Job, data: bytes, gated: GateResult, reported: Collection[str] = ()) -> Checked:
    """Check the content of a file that was at the gate (``gated``) already; otherwise as ``check_bytes`` does."""
    other_language = not os.path.splitext(job.path)[1] and not _is_python(job.path, data) and _syntax_error(data)
    if (not gated.needed or other_language) and not job.is_joined:
        return Checked(passed_over(job, gated, data))
    try:
        source = read_source(job.path, data)
    except SourceError as error:
        found = unparsable(job.path, error.line, error.column, f"{error}, {UNCHECKED}")
        return Checked(FileResult(job.path, (found,) if found.code in _enabled(job.path, job.settings) else ()))
    from ..project.local_modules import LocalModules  # start-up: most files stop at the gate

    return check_loaded(source, job, LocalModules(job.path), reported)


def passed_over(job: Job, gated: GateResult, data: bytes) -> FileResult:
    """The result for a file that no rule has a word for; one that is named is Python all the same, or it is said."""
    broken = job.named and _is_python(job.path, data) and _syntax_error(data)
    found = (not_python(job.path, broken),) if broken else ()
    enabled = _enabled(job.path, job.settings) if found else frozenset()
    return FileResult(job.path, tuple(it for it in found if it.code in enabled), consulted=gated.consulted)


def _is_python(path: str, data: bytes) -> bool:
    """Whether the extension says so, or the first line of a script without one; pre-commit names every file."""
    extension = ".py" if path == STDIN else os.path.splitext(path)[1]
    first = data.split(b"\n", 1)[0]
    return extension in (".py", ".pyi") or (not extension and first.startswith(b"#!") and b"python" in first)


def _syntax_error(data: bytes) -> SyntaxError | None:
    from _ast import PyCF_ONLY_AST  # start-up: importing `ast` takes longer than the file
    from warnings import catch_warnings, simplefilter

    with catch_warnings():
        simplefilter("ignore")  # of escapes in strings
        try:
            compile(data, "<named>", "exec", PyCF_ONLY_AST)
        except SyntaxError as error:
            return error
        except ValueError as error:
            return SyntaxError(str(error))
        except (RecursionError, MemoryError):
            return None
    return None


def check_loaded(
    source: Source, job: Job, modules: LocalModules | None = None, reported: Collection[str] = ()
) -> Checked:
    """Check a text that is read already. A failure of the analysis is in the result, nothing is raised.

    Args:
        source: The text.
        job: The file and the settings that hold for it.
        modules: Finds the modules of the project that it imports; None when only this text is read.
        reported: Names of files that it imports whose findings are wanted with it.
    """
    try:
        found = with_any_depth(lambda: _analyse(source, job, modules, reported))
    except Exception as error:  # a fault of ours in one file must not stop the others
        detail = " ".join(f"{type(error).__name__}: {error}".split())
        failure = f"{source.filename}: not checked, internal error of ckpt-lint ({detail}); please report it"
        return Checked(FileResult(source.filename, failure=failure), source)
    here = tuple(finding for finding in found if finding.filename == source.filename)
    others = (finding for finding in found if finding.filename != source.filename)
    elsewhere = tuple(finding for finding in others if _is_shown(finding, job.settings))
    if source.notebook is not None and elsewhere:
        from ..sources.notebook import notes_to_cells  # start-up: only notebooks need it

        elsewhere = tuple(notes_to_cells(source.notebook, source.filename, finding) for finding in elsewhere)
    consulted = tuple(modules.consulted.items()) if modules is not None else ()
    return _reported(source, job, here, FileResult(source.filename, consulted=consulted, elsewhere=elsewhere))


def with_more(checked: Checked, job: Job, more: Iterable[Finding]) -> Checked:
    """``checked`` with what only the runs of other files show in it; nothing is analysed again.

    Args:
        checked: What its own run shows.
        job: Path and settings of the file.
        more: Findings in it from the runs of other files.
    """
    if checked.source is None:
        return checked
    # What one run makes certain is no note because another one leaves it open.
    every = sorted((*more, *checked.analysed), key=lambda finding: finding.condition is None)
    together = {(finding.code, finding.span): finding for finding in every}
    return _reported(checked.source, job, tuple(together.values()), checked.result)


def _reported(source: Source, job: Job, analysed: tuple[Finding, ...], result: FileResult) -> Checked:
    """``result`` with those of ``analysed`` that are selected and not silenced by a comment."""
    findings = tuple(_selected(source, job.settings, analysed))
    shown = findings
    if source.notebook is not None and findings:
        from ..sources.notebook import to_cell  # start-up: only notebooks need it

        shown = tuple(to_cell(source.notebook, finding) for finding in findings)
        # A fix that reaches into another cell is not offered.
        pairs = zip(findings, shown, strict=True)
        findings = tuple(finding if cell.fix is not None else finding._replace(fix=None) for finding, cell in pairs)
    return Checked(result._replace(findings=shown), source, analysed, findings)


def _selected(source: Source, settings: Settings, analysed: Iterable[Finding]) -> list[Finding]:
    found = [*analysed, *_bad_cells(source)]
    if not found and not names_us(source.text):
        return []
    # Start-up: a clean file has nothing to silence.
    from ..configs.comments import comments_of
    from ..suppressions.comments import read_suppressions, suppress, unused

    if settings.names_rules:
        codes = _enabled(source.filename, settings)
        found = [finding for finding in found if finding.code in codes]
    if settings.ignore_noqa:
        shown = (finding for finding in found if _is_shown(finding, settings))
        return sorted(shown, key=lambda finding: (finding.span, finding.code))
    suppressions = comments_of(source) if is_settings(source.filename) else read_suppressions(source.text)
    left, used = suppress(found, suppressions)
    left = [finding for finding in left if _is_shown(finding, settings)]
    if suppressions.comments and names_us(source.text):
        codes = _enabled(source.filename, settings)
        idle = unused(source.filename, suppressions, used, _judged(source, codes), source.text)
        left += suppress((finding for finding in idle if finding.code in codes), suppressions)[0]
    return sorted(left, key=lambda finding: (finding.span, finding.code))


def _is_shown(finding: Finding, settings: Settings) -> bool:
    return settings.notes or finding.condition is None


def _analyse(source: Source, job: Job, find_module: FindModule | None, reported: Collection[str]) -> list[Finding]:
    # Start-up: most files stop at the gate.
    from ..project.library_versions import versions_of
    from .check_text import check_source

    def is_reported(imported: str) -> bool:
        return os.path.abspath(imported) in reported

    settings = job.settings
    versions = {**versions_of(source.text, source.filename), **dict(settings.versions)}
    # Rules that are off by default run only when they are selected; what is left out is left out afterwards.
    select = _enabled(source.filename, settings).__contains__ if settings.selects else None
    if job.runs or is_config(source.filename):
        from ..configs.check import check_in_runs  # start-up: only configurations need it

        return check_in_runs(source, job.runs, select, dict(settings.versions), is_reported)
    if is_launch(source.filename):
        return []  # by itself, as an editor gives it, it names files that nobody read
    check_it = partial(
        check_source,
        filename=source.filename,
        select=select,
        versions=versions,
        find_module=find_module,
        reported=is_reported,
        notes=True,
    )
    if source.markdown is None:
        return check_it(source.text)
    from ..sources.markdown import check_blocks  # start-up: only documents need it

    return check_blocks(source.markdown, check_it)


def _bad_cells(source: Source) -> list[Finding]:
    if source.notebook is None:
        return []
    from ..sources.notebook import unparsable_cells  # start-up: only notebooks need it

    message = "this cell is not valid Python, so it was not checked"
    return [unparsable(source.filename, cell.start + 1, 1, message) for cell in unparsable_cells(source.notebook)]


def _enabled(filename: str, settings: Settings) -> frozenset[str]:
    from ..project.selection import enabled_codes  # start-up: it loads every rule

    relative = os.path.relpath(os.path.abspath(filename), settings.root).replace(os.sep, "/")
    return enabled_codes(settings, relative)


def _judged(source: Source, codes: frozenset[str]) -> frozenset[str]:
    """Codes and names whose suppressions can be called unused.

    A comment for a rule that this file gives a part of what it looks for may be needed under a script that imports it.
    """
    # Start-up: every rule is loaded, for files with our comments only.
    from ..catalogue.rules import all_rules
    from ..prefilter.candidates import named_in_part

    open_codes = frozenset() if is_settings(source.filename) else named_in_part(source.text)
    judged = [rule for rule in all_rules() if rule.code in codes and rule.code not in open_codes]
    return frozenset(word for rule in judged for word in (rule.code, rule.name))
