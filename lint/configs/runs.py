"""Which files make one run: a script with the configurations it is given, or what a launch script starts."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING

from ..analysis.job import Job
from ..facts.objects.settings_files import PARSES, READERS
from ..project.discover import LARGEST_CONFIG
from ..sources.error import SourceError
from ..sources.source import read_source
from . import is_config, is_launch
from .hydra_files import files_below, primary_file
from .kinds import OF_A_TRAINER, load_kinds
from .nodes import ConfigError
from .programs import settings_named, started_by
from .reading import read_config
from .run_files import RunFiles
from .scripts import existing, folder_entered, script_started
from .shell.commands import exported, read_commands
from .shell.here_documents import named_in
from .started_words import without_redirections
from .toml_files import toml_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ..project.settings import Settings
    from .shell.commands import Word

#: The name of a JSON file, as a program writes it: `"ds.json"`, `f"{here}/ds.json"`.
_STRING = re.compile(r"""(?:["']|\}/)([\w./-]+\.json)["']""")
#: The same for any file of settings, and what is in a program that reads one itself.
_SETTINGS = re.compile(r"""(?:["']|\}/)([\w./-]+\.(?:json|ya?ml))["']""")
_READS = re.compile(
    "|".join(map(re.escape, (*dict.fromkeys(".".join(name.split(".")[-2:]) for name in READERS), *PARSES)))
)
#: A path that is put together: `HERE / "configs" / "ds.json"`, `os.path.join(here, "configs", "ds.json")`.
_JOINED = re.compile(r"""["']([\w-]+)["']\s*[/,]\s*["']([\w.-]+\.(?:json|ya?ml))["']""")
#: The file for DeepSpeed in the YAML of `accelerate launch`.
_DEEPSPEED_FILE = re.compile(r"""(?m)^\s*deepspeed_config_file:\s*["']?([\w./-]+\.json)""")
#: Numbers that measure something.
_MEASURE = re.compile(r"-?(?:\d*\.\d*(?:e-?\d+)?|\d+e-?\d+|\d{4,})")
#: Commands that start one script with different words; more are not told apart.
_MOST_COMMANDS = 4
#: In settings that a script reads for its checkpoints: of these, or the arguments of one, by whatever name it goes.
_SPEAKS = re.compile("checkpoint|reentrant|preserve_rng_state|determinism_check")
#: In words of a command that decide about checkpointing, or about what a reentrant checkpoint does not go with.
_DECIDES = re.compile(r"checkpointing|reentrant|fsdp|find_unused|offload", re.IGNORECASE)
#: The same for programs that are started by their names.
_DECIDES_THERE = re.compile(rf"{_DECIDES.pattern}|recompute|^NPROC_PER_NODE=|^NNODES=", re.IGNORECASE)


def in_runs(
    jobs: list[Job], configs: tuple[str, ...], settings_for: Callable[[str], Settings], named: Collection[str] = ()
) -> tuple[list[Job], list[str]]:
    """The jobs with the runs that their files belong to.

    Args:
        jobs: The files to check.
        configs: Configurations and launch scripts of the command line.
        settings_for: The settings that hold in a folder.
        named: Files of the command line; other files of the runs that they start are checked too.

    Returns:
        The jobs, and a sentence for each of ``configs`` that is none.
    """
    problems = [problem for config in configs for problem in _problem(config)]
    names = {os.path.abspath(job.path): job.path for job in jobs}
    runs = [_renamed(run, names) for run in runs_of([job.path for job in jobs], configs)]
    by_hydra = {script for script in {run.script for run in runs if run.words is not None} if _set_by_hydra(script)}
    runs = [
        run if run.script in by_hydra else known for run in runs if (known := _looked_at(run, names, named)) is not None
    ]
    added = [file for run in runs for file in run.files if os.path.abspath(file) not in names]
    together = [*jobs, *(Job(file, settings_for(os.path.dirname(file) or ".")) for file in dict.fromkeys(added))]
    belonging = _runs_by_file(runs)
    return [
        _with_runs(job, belonging) for job in together if not is_launch(job.path) or job.path in belonging
    ], problems


def _looked_at(run: RunFiles, names: Mapping[str, str], named: Collection[str]) -> RunFiles | None:
    """``run`` as far as it counts: a launch script that is not named may have nothing to say."""
    if run.launch is None or run.launch in named or _tells_more(run, names):
        return run
    is_checked = run.script is not None and os.path.abspath(run.script) in names
    return run._replace(is_plain=True) if is_checked and run.words is not None else None


def _set_by_hydra(script: str | None) -> bool:
    """Whether `hydra.main` gives settings to ``script`` of which some speak of checkpointing."""
    primary = primary_file(script, _text(script)) if script is not None else None
    return primary is not None and any(map(_speaks_of_checkpointing, files_below(primary)))


def _tells_more(run: RunFiles, names: Mapping[str, str]) -> bool:
    """Whether a launch script that was found, not named, says more about its script than the script itself."""
    if run.script is not None and os.path.abspath(run.script) not in names:
        return False
    return bool(run.said) or (run.script is not None and any(map(_speaks_of_checkpointing, run.configs)))


def _speaks_of_checkpointing(config: str) -> bool:
    return _SPEAKS.search(_text(config)) is not None


def _runs_by_file(runs: Iterable[RunFiles]) -> dict[str, list[RunFiles]]:
    found: dict[str, list[RunFiles]] = {}
    for run in runs:
        for file in dict.fromkeys(run.files):
            found.setdefault(file, []).append(run)
    return found


def _with_runs(job: Job, belonging: Mapping[str, list[RunFiles]]) -> Job:
    own = belonging.get(job.path, [])
    if any(run.script is not None for run in own):
        # With the script more is known than without.
        own = [run for run in own if run.script is not None]
        if is_config(job.path) and all(job.path in run.read for run in own):
            own.append(RunFiles(None, (job.path,)))  # whether a script reads it shows only then
    # What a parser of the script makes of a command is found with the script.
    own = [run for run in own if not run.is_plain or run.script == job.path]
    # Commands that differ in nothing that decides about checkpointing are one run, but in their own launch script.
    different = {
        (run.without_words, run.launch == job.path, run.words if run.script == job.path else None): run
        for run in reversed(own)
    }
    return job._replace(runs=tuple(_few(reversed(different.values()))))


def _few(runs: Iterable[RunFiles]) -> Iterator[RunFiles]:
    """The first of ``runs``, where many differ in words for the script alone."""
    often: Counter[RunFiles] = Counter()
    for run in runs:
        often[run.without_words] += 1
        if often[run.without_words] <= _MOST_COMMANDS:
            yield run


def _renamed(run: RunFiles, names: dict[str, str]) -> RunFiles:
    """``run`` with its files called as the user called them."""

    def name(path: str) -> str:
        return names.setdefault(os.path.abspath(path), path)

    names = dict(names)
    script = None if run.script is None else name(run.script)
    configs, read = (tuple(dict.fromkeys(map(name, files))) for files in (run.configs, run.read))
    return run._replace(script=script, configs=configs, read=read)


def _problem(config: str) -> Iterator[str]:
    """Why a file that was named as a configuration is none, in a sentence; an invalid one is a finding."""
    try:
        with open(config, "rb") as file:
            known = read_config(config, read_source(config, file.read()).text)
    except (OSError, SourceError) as error:
        yield f"{config}: cannot be read: {error}"
    except ConfigError:
        return
    else:
        if known is None:
            labels = ", ".join(kind.label for kind in load_kinds())
            yield f"{config}: no configuration of training that ckpt-lint knows ({labels})"


def runs_of(files: Iterable[str], configs: tuple[str, ...]) -> list[RunFiles]:
    """The runs that ``files`` start: each with ``configs``, or with what a launch script names."""
    found: list[RunFiles] = []
    files = list(files)
    settings = _named_in_scripts(files)
    names = frozenset(os.path.basename(file) for file in files if is_config(file))
    for file in files:
        if is_launch(file):
            found += _started_by(file, configs)
        elif configs and is_config(file):
            found.append(RunFiles(None, (file, *configs)))
        else:
            given, read = (*_named_by(file, settings), *configs), _read_by(file, names)
            tables = toml_files(file, _text(file)) if file.endswith(".py") else ()
            if given or read or any(map(_speaks_of_checkpointing, tables)):
                found.append(RunFiles(file, given, read=read))
    return found


def _read_by(script: str, names: frozenset[str]) -> tuple[str, ...]:
    """The files of these names that ``script`` may read itself, and that say something about checkpointing."""
    text = _text(script) if names and script.endswith(".py") else ""
    if _READS.search(text) is None:
        return ()
    found = [path for path in _written_in(text, _SETTINGS, names, script) if _speaks_of_checkpointing(path)]
    # Those that the Trainer reads are given to its arguments by their names.
    return tuple(path for path in found if _kind(path) not in OF_A_TRAINER)


def _named_in_scripts(files: list[str]) -> frozenset[str]:
    """The names of those of ``files`` that mean something to the script which names them: DeepSpeed's, FSDP's."""
    held = (file for file in files if file.endswith(".json") and "activation_checkpointing" in _text(file))
    return frozenset(os.path.basename(file) for file in held if _kind(file) in OF_A_TRAINER)


def _kind(config: str) -> str | None:
    try:
        known = read_config(config, _text(config))
    except ConfigError:
        return None
    return known.kind.label if known is not None else None


def _named_by(script: str, settings: frozenset[str]) -> tuple[str, ...]:
    """The files of these names that ``script`` writes down as strings."""
    if not settings or not script.endswith(".py"):
        return ()
    text = _text(script)
    if not any(name in text for name in settings):
        return ()
    return tuple(_written_in(text, _STRING, settings, script))


def _written_in(text: str, string: re.Pattern[str], names: Collection[str], script: str) -> Iterator[str]:
    """The files of these names that stand in ``text``, that of ``script``, as strings."""
    matches = (match[1] for match in string.finditer(text) if os.path.basename(match[1]) in names)
    written = dict.fromkeys(map(os.path.normpath, matches))
    # Arguments are matched with a file by its last name, so it must be the only one of that name.
    often = Counter(map(os.path.basename, written))
    folders = {match[2]: match[1] for match in _JOINED.finditer(text)}
    alone = (path for path in written if often[os.path.basename(path)] == 1)
    known = (existing(path, script) or existing(os.path.join(folders.get(path, ""), path), script) for path in alone)
    return (path for path in known if path is not None)


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read(LARGEST_CONFIG)
    except OSError:
        return ""


def _started_by(launch: str, configs: tuple[str, ...]) -> list[RunFiles]:
    try:
        with open(launch, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return []
    commands = read_commands(text)
    found = [_run_of(number, commands, text, launch, configs) for number in range(len(commands))]
    return [run for run in found if run is not None]


def _run_of(
    number: int, commands: list[list[Word]], text: str, launch: str, configs: tuple[str, ...]
) -> RunFiles | None:
    """The run that a command of the launch script ``text`` starts."""
    words, folder = commands[number], folder_entered(commands[:number])
    script = script_started(words, launch, folder)
    started = started_by(words) if script is None else None
    files = _files(words if started is None else settings_named(started), launch, folder)
    named = [path for path in files if is_config(path)]
    given = tuple(dict.fromkeys([*named, *_named_by_launchers(named, launch), *configs]))
    own = _written_for(words, text)
    if not (script or given or own or started is not None):
        return None
    around = exported(commands, number)
    said = [word.text or "" for word in words] + [f"{name}={value.text}" for name, value in around.items()]
    said += [f"{name}: checkpointing" for name in own if "checkpointing" in text]
    said += [f"{path}: checkpointing" for path in files if path.endswith(".toml") and _speaks_of_checkpointing(path)]
    decides = tuple(word for word in said if (_DECIDES if started is None else _DECIDES_THERE).search(word))
    if script is None:
        return RunFiles(None, given, launch, number, decides)
    behind = tuple(_comparable(word.text or "") for word in without_redirections(words[script.argument :]))
    return RunFiles(script.path, given, launch, number, decides, (), script.argument, behind if script.is_run else None)


def _comparable(word: str) -> str:
    """``word`` as far as a program is likely to ask for it: not a path, a learning rate or a large number."""
    return "" if "/" in word or _MEASURE.fullmatch(word) else word


def _named_by_launchers(configs: list[str], launch: str) -> list[str]:
    """The files for DeepSpeed that configurations of `accelerate launch` name."""
    found = (_DEEPSPEED_FILE.search(_text(config)) for config in configs if not config.endswith(".json"))
    return [path for match in found if match is not None for path in (existing(match[1], launch),) if path is not None]


def _written_for(words: Sequence[Word], text: str) -> list[str]:
    """The configurations that the launch script writes and that a command names, but where it writes them."""
    said = [word.text or "" for word in words]
    return [] if "<<" not in text or any("<<" in word for word in said) else [it.name for it in named_in(said, text)]


def _files(words: Sequence[Word], launch: str, folder: str | None) -> list[str]:
    return [path for word in words for path in (existing(word.text, launch, folder),) if path is not None]
