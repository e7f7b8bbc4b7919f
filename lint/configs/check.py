"""From configuration files, and the script they belong to, to findings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..facts.interpreter.program import read_program
from ..facts.origin import origin, setting_span
from ..model.conditions.verdict import judged
from ..model.conditions.versions import Versions
from ..model.run import Run
from ..prefilter.candidates import candidates
from ..project.library_versions import versions_of
from ..project.local_modules import LocalModules
from ..rules import load_rules
from ..sources.error import SourceError
from ..sources.locator import Locator
from ..sources.source import read_source
from ..tool_rules.ckpt903_unparsable_file import UNCHECKED, not_python, unparsable
from . import PROGRAM, is_config
from .command_line import join_command_line, join_launcher, read_command
from .document import Document
from .findings import settings_findings
from .kinds import recognise
from .nodes import ConfigError
from .programs import read_started
from .reading import read_config, read_document
from .run_files import RunFiles
from .shell.commands import read_commands
from .shell.here_documents import named_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..facts.walk import Program
    from ..finding import Finding, Span
    from ..model.report import Report
    from ..rules import Rule
    from ..sources.source import Source
    from .kinds import Config


class Parts(NamedTuple):
    """What is known of a run."""

    program: Program
    #: The files with settings, by name.
    documents: dict[str, Document]


def check_in_runs(
    source: Source,
    runs: tuple[RunFiles, ...],
    select: Callable[[str], bool] | None,
    versions: Mapping[str, str],
    reported: Callable[[str], bool],
) -> list[Finding]:
    """The findings in a script or a configuration, as a part of its runs or else by itself.

    Args:
        source: The script or the configuration.
        runs: The runs that it is a part of.
        select: Tells for a code whether its rule runs; None for every rule that is on by default.
        versions: The range that each library is used in.
        reported: Tells for the file name of a module that a script imports whether findings in it are wanted.
    """
    if is_config(source.filename):
        try:
            read_config(source.filename, source.text)
        except ConfigError as error:
            return [_unreadable(source, error)]
    found: dict[tuple[str, str, Span], Finding] = {}
    for run in runs or (RunFiles(None, (source.filename,)),):
        for finding in _check_run(source, run, select, versions, reported):
            found.setdefault((finding.code, finding.filename, finding.span), finding)
    return sorted(found.values(), key=lambda finding: (finding.filename, finding.span, finding.code))


def _check_run(
    source: Source,
    run: RunFiles,
    select: Callable[[str], bool] | None,
    versions: Mapping[str, str],
    reported: Callable[[str], bool],
) -> list[Finding]:
    script = _text_of(run.script, source) or ""
    place = run.script or source.filename
    try:
        parts = read_run(source, run)
    except SyntaxError as error:
        return [not_python(source.filename, error)] if run.script == source.filename else []
    joined = Run(parts.program, Versions({**versions_of(script, place), **versions}))
    # What one file says may concern a rule that is triggered by what another one says.
    known = load_rules() if len(run.files) > 1 else candidates(PROGRAM + source.text)
    rules = [rule for rule in known if joined.versions.admit(rule.versions)]
    wanted = [rule for rule in rules if (rule.default if select is None else select(rule.code))]
    proposed = [(rule, report) for rule in wanted for report in judged(joined, rule.check(joined))]
    own = settings_findings(proposed, parts.program, parts.documents)
    of_code = [(rule, report) for rule, report in proposed if setting_span(report.node) is None]
    if run.script == source.filename:
        own += _of_code(of_code, parts.program, reported)
    others = {*run.files} - {source.filename}
    return [finding for finding in own if finding.filename not in others]


def _of_code(proposed: list[tuple[Rule, Report]], program: Program, reported: Callable[[str], bool]) -> list[Finding]:
    files = [(origin(report.node), rule, report) for rule, report in proposed]
    wanted = [(rule, report) for file, rule, report in files if file is None or reported(file)]
    if not wanted:
        return []
    from ..analysis.confirm import confirm  # start-up: libcst, where there is something to confirm

    return confirm(wanted, program)


def read_run(source: Source, run: RunFiles) -> Parts:
    """The program of a run with what its configurations make of it.

    Args:
        source: The file of the run that is looked at, with its text as it is now.
        run: The files of the run; those beside ``source`` are read from disk.

    Raises:
        SyntaxError: The script is no Python.
    """
    script = _text_of(run.script, source) or ""
    modules = LocalModules(run.script) if run.script is not None else None
    own = [document for name in run.read if (document := _document(name, source)) is not None]
    contents = {os.path.basename(document.filename): document.root for document in own}
    program = read_program(script, run.script or source.filename, modules, contents)
    launch = _text_of(run.launch, source)
    started = read_started(run, launch or "", lambda name: _text_of(name, source))
    taken = {document.filename for document in started.documents} if started is not None else set()
    configs = [config for name in run.configs if name not in taken and (config := _config(name, source)) is not None]
    configs += _written(run, launch or "")
    documents = {document.filename: document for document in (*own, *(config.document for config in configs))}
    left = [config for config in configs if not config.kind.fill(config, program)]
    if started is not None:
        documents |= {document.filename: document for document in started.documents}
        left.append(started.config)
    command = read_command(run, launch) if run.launch is not None else None
    if command is not None:
        documents[command.document.filename] = command.document
        join_command_line(command, program)
    for config in left:
        config.kind.add(config, program)
    if started is not None and command is not None:
        join_launcher(command, program)  # to what a program has that is known by its name
    # accelerate's may name DeepSpeed's, whatever the order in which they were given.
    for config in sorted(left, key=lambda config: config.kind.label.lower()):
        config.kind.apply(config, program)
    return Parts(program, documents)


def _written(run: RunFiles, text: str) -> list[Config]:
    """The configurations that the launch script ``text`` writes and names in the command of ``run``."""
    commands = read_commands(text) if run.launch is not None and "<<" in text else []
    words = [word.text or "" for word in commands[run.command]] if run.command < len(commands) else []
    found = (recognise(Document(run.launch or "", text, file.root)) for file in named_in(words, text))
    return [config for config in found if config is not None]


def _config(filename: str, source: Source) -> Config | None:
    text = _text_of(filename, source)
    try:
        return read_config(filename, text) if text is not None else None
    except ConfigError:
        return None


def _document(filename: str, source: Source) -> Document | None:
    text = _text_of(filename, source)
    # What `${...}` stands for is elsewhere.
    return read_document(filename, text) if text is not None and "${" not in text else None


def _text_of(filename: str | None, source: Source) -> str | None:
    """The text of a file of the run; of ``source`` the one that is checked, which may not be stored yet."""
    if filename is None or filename == source.filename:
        return source.text if filename is not None else None
    try:
        with open(filename, "rb") as file:
            return read_source(filename, file.read()).text
    except (OSError, SourceError):
        return None


def _unreadable(source: Source, error: ConfigError) -> Finding:
    line, column = Locator(source.text).position(error.offset)
    kind = "JSON" if source.filename.endswith(".json") else "YAML"
    return unparsable(source.filename, line, column, f"not valid {kind} ({error}), {UNCHECKED}")
