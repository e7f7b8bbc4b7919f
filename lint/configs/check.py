"""From configuration files, and the script they belong to, to findings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..facts.interpreter.program import read_program
from ..facts.objects.settings_files import HYDRA
from ..facts.origin import origin, setting_span
from ..finding import Applicability
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
from .hydra_files import composed, primary_file
from .kinds import OF_A_TRAINER, recognise
from .nodes import ConfigError
from .programs import read_started
from .reading import read_config, read_document
from .run_files import RunFiles
from .shell.commands import read_commands
from .shell.here_documents import named_in
from .started_words import started_words
from .toml_files import toml_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ..facts.values import Dict, Seq
    from ..facts.walk import Program
    from ..finding import Finding, Span
    from ..model.report import Report
    from ..rules import Rule
    from ..sources.source import Source
    from .kinds import Config
    from .started_words import StartedWords


class Parts(NamedTuple):
    """What is known of a run."""

    program: Program
    #: The files with settings, by name.
    documents: dict[str, Document]
    #: What its command says to the script, where a parser of that reads it.
    words: StartedWords | None = None


class Wanted(NamedTuple):
    """Which findings are asked for."""

    #: Tells for a code whether its rule runs; None for every rule that is on by default.
    select: Callable[[str], bool] | None
    #: The range that each library is used in.
    versions: Mapping[str, str]
    #: Tells for the file name of a module that a script imports whether findings in it are wanted.
    reported: Callable[[str], bool]


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
    wanted = Wanted(select, versions, reported)
    found: dict[tuple[str, str, Span], Finding] = {}
    for finding in _in_each(source, runs or (RunFiles(None, (source.filename,)),), wanted):
        place = (finding.code, finding.filename, finding.span)
        # What one run makes certain is no note because another one leaves it open.
        if place not in found or (found[place].condition is not None and finding.condition is None):
            found[place] = finding
    return sorted(found.values(), key=lambda finding: (finding.filename, finding.span, finding.code))


def _in_each(source: Source, runs: tuple[RunFiles, ...], wanted: Wanted) -> Iterator[Finding]:
    """The findings of each of ``runs``.

    Where a parser of the script reads the words of a command, what is found with them left open comes first: that
    holds for other words, too. What only these words make a mistake shows the command.
    """
    looked_at: dict[RunFiles, list[Finding] | None] = {}
    for run in runs:
        if run.without_words in looked_at and looked_at[run.without_words] is None:
            continue  # No parser of the script reads its words: the run is known.
        try:
            parts = read_run(source, run)
        except SyntaxError as error:
            yield from [not_python(source.filename, error)] if run.script == source.filename else []
            continue
        if parts.words is None:
            looked_at[run.without_words] = None
            yield from _found_in(parts, source, run, wanted)
            continue
        if looked_at.get(run.without_words) is None:
            left_open = run._replace(words=None)
            looked_at[run.without_words] = list(_found_in(read_run(source, left_open), source, left_open, wanted))
        known = looked_at[run.without_words] or []
        yield from known
        yield from _of_command(parts.words, _found_in(parts, source, run, wanted))


def _of_command(words: StartedWords, found: Iterable[Finding]) -> Iterator[Finding]:
    """``found`` as what one command makes a mistake: with the command, and no fix that others would not want."""
    meant = {rule.code for rule in load_rules() if rule.may_be_meant}
    for finding in found:
        if finding.code in meant:
            continue
        is_shown = words.note.filename in (finding.filename, *(note.filename for note in finding.notes))
        notes = finding.notes if is_shown else (*finding.notes, words.note)
        fix = finding.fix
        if fix is not None and fix.applicability is Applicability.SAFE:
            fix = fix._replace(applicability=Applicability.UNSAFE)
        yield finding._replace(notes=notes, fix=fix)


def _found_in(parts: Parts, source: Source, run: RunFiles, wanted: Wanted) -> list[Finding]:
    script = _text_of(run.script, source) or ""
    place = run.script or source.filename
    joined = Run(parts.program, Versions({**versions_of(script, place), **wanted.versions}))
    # What one file says may concern a rule that is triggered by what another one says.
    known = load_rules() if len(run.files) > 1 or parts.documents else candidates(PROGRAM + source.text)
    rules = [rule for rule in known if joined.versions.admit(rule.versions)]
    chosen = [rule for rule in rules if (rule.default if wanted.select is None else wanted.select(rule.code))]
    proposed = [(rule, report) for rule in chosen for report in judged(joined, rule.check(joined))]
    own = settings_findings(proposed, parts.program, parts.documents)
    of_code = [(rule, report) for rule, report in proposed if setting_span(report.node) is None]
    if run.script == source.filename:
        own += _of_code(of_code, parts.program, wanted.reported)
    # What lies in another file of the run is found with that file; nothing else looks at a plain command.
    others = {*run.files} - {source.filename} if not run.is_plain else set[str]()
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
    script, launch = _text_of(run.script, source) or "", _text_of(run.launch, source) or ""
    modules = LocalModules(run.script) if run.script is not None else None
    configs = [config for name in run.configs if (config := _config(name, source)) is not None]
    read = {document.filename: document for document in _read_by_script(run, configs, source)}
    contents = {os.path.basename(filename): document.root for filename, document in read.items()}
    words = started_words(run, launch)
    command = words.words if words is not None else None
    named = toml_files(run.script, script, command, run.launch or "") if run.script is not None else ()
    tables = [document for name in named if (document := _document(name, source)) is not None]
    contents |= {os.path.basename(document.filename): document.root for document in tables}
    read |= {document.filename: document for document in tables}
    read |= _given_by_hydra(run, script, command, contents, source)
    program = read_program(script, run.script or source.filename, modules, contents, command)
    words = words if program.command_read else None
    documents = read | ({words.document.filename: words.document} if words is not None else {})
    parts = Parts(program, documents, words)
    if not run.is_plain:
        unread = [
            config for config in configs if os.path.basename(config.document.filename) not in program.settings_read
        ]
        _join(run, parts, unread, launch, source)
    return parts


def _given_by_hydra(
    run: RunFiles, script: str, command: Seq | None, contents: dict[str, Dict], source: Source
) -> dict[str, Document]:
    """Add what `hydra.main` gives to the script to ``contents``; the files that it comes from."""
    primary = primary_file(run.script, script) if run.script is not None and command is not None else None
    found: dict[str, Document] = {}

    def load(name: str) -> Document | None:
        document = found.get(name) or _document(name, source)
        found.update({name: document} if document is not None else {})
        return document

    made = composed(primary, command, load) if primary is not None and command is not None else None
    contents |= {HYDRA: made} if made is not None else {}
    return found


def _join(run: RunFiles, parts: Parts, configs: list[Config], launch: str, source: Source) -> None:
    """Add to ``parts`` what the launcher of ``run`` and its parsers make of ``configs`` and of its command."""
    program, documents = parts.program, parts.documents
    started = read_started(run, launch, lambda name: _text_of(name, source))
    taken = {document.filename for document in started.documents} if started is not None else set()
    configs = [config for config in configs if config.document.filename not in taken] + _written(run, launch)
    documents |= {config.document.filename: config.document for config in configs}
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


def _read_by_script(run: RunFiles, configs: list[Config], source: Source) -> Iterator[Document]:
    """The files of settings that the script of ``run`` may read itself: it, or its command, names them."""
    known = {config.document.filename: config for config in configs}
    for name in dict.fromkeys((*run.read, *(run.configs if run.words is not None else ()))):
        config = known.get(name)
        document = config.document if config is not None else _document(name, source)
        # What the Trainer reads is given to its arguments by its name.
        if document is not None and (config is None or config.kind.label not in OF_A_TRAINER):
            yield document


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
    return read_document(filename, text) if text is not None else None


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
