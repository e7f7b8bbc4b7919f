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
from .kinds import load_kinds
from .nodes import ConfigError
from .programs import settings_named, started_by
from .reading import read_config
from .run_files import RunFiles
from .shell.commands import exported, read_commands
from .shell.here_documents import named_in

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
#: The file for DeepSpeed in the YAML of `accelerate launch`.
_DEEPSPEED_FILE = re.compile(r"""(?m)^\s*deepspeed_config_file:\s*["']?([\w./-]+\.json)""")
#: The kinds of files that arguments of a Trainer name.
_OF_A_TRAINER = ("DeepSpeed", "FSDP")
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
    runs = [run for run in runs if run.launch is None or run.launch in named or _tells_more(run, names)]
    added = [file for run in runs for file in run.files if os.path.abspath(file) not in names]
    together = [*jobs, *(Job(file, settings_for(os.path.dirname(file) or ".")) for file in dict.fromkeys(added))]
    belonging = _runs_by_file(runs)
    return [
        _with_runs(job, belonging) for job in together if not is_launch(job.path) or job.path in belonging
    ], problems


def _tells_more(run: RunFiles, names: Mapping[str, str]) -> bool:
    """Whether a launch script that was found, not named, says more about its script than the script itself."""
    if run.script is not None and os.path.abspath(run.script) not in names:
        return False
    return bool(run.said) or (run.script is not None and any(map(_speaks_of_checkpointing, run.configs)))


def _speaks_of_checkpointing(config: str) -> bool:
    return "checkpoint" in _text(config)


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
    # Commands that differ in nothing that decides about checkpointing are one run, but in their own launch script.
    different = {(run.script, run.configs, run.read, run.said, run.launch == job.path): run for run in reversed(own)}
    return job._replace(runs=tuple(reversed(different.values())))


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
            if given or read:
                found.append(RunFiles(file, given, read=read))
    return found


def _read_by(script: str, names: frozenset[str]) -> tuple[str, ...]:
    """The files of these names that ``script`` may read itself, and that say something about checkpointing."""
    text = _text(script) if names and script.endswith(".py") else ""
    if _READS.search(text) is None:
        return ()
    found = [path for path in _written_in(text, _SETTINGS, names, script) if _speaks_of_checkpointing(path)]
    # Those that the Trainer reads are given to its arguments by their names.
    return tuple(path for path in found if _kind(path) not in _OF_A_TRAINER)


def _named_in_scripts(files: list[str]) -> frozenset[str]:
    """The names of those of ``files`` that mean something to the script which names them: DeepSpeed's, FSDP's."""
    held = (file for file in files if file.endswith(".json") and "activation_checkpointing" in _text(file))
    return frozenset(os.path.basename(file) for file in held if _kind(file) in _OF_A_TRAINER)


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
    known = (_existing(path, script) for path in written if often[os.path.basename(path)] == 1)
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
    runs = []
    for number, words in enumerate(commands):
        scripts = [path for path in _files(words, launch) if path.endswith(".py")]
        started = started_by(words) if not scripts else None
        named = _files(words if started is None else settings_named(started), launch)
        named = [path for path in named if is_config(path)]
        given = tuple(dict.fromkeys([*named, *_named_by_launchers(named, launch), *configs]))
        own = _written_for(words, text)
        if scripts or given or own or started is not None:
            around = exported(commands, number)
            said = [word.text or "" for word in words] + [f"{name}={value.text}" for name, value in around.items()]
            said += [f"{name}: checkpointing" for name in own if "checkpointing" in text]
            decides = tuple(word for word in said if (_DECIDES if started is None else _DECIDES_THERE).search(word))
            runs.append(RunFiles(scripts[0] if scripts else None, given, launch, number, decides))
    return runs


def _named_by_launchers(configs: list[str], launch: str) -> list[str]:
    """The files for DeepSpeed that configurations of `accelerate launch` name."""
    found = (_DEEPSPEED_FILE.search(_text(config)) for config in configs if not config.endswith(".json"))
    return [path for match in found if match is not None for path in (_existing(match[1], launch),) if path is not None]


def _written_for(words: Sequence[Word], text: str) -> list[str]:
    """The configurations that the launch script writes and that a command names, but where it writes them."""
    said = [word.text or "" for word in words]
    return [] if "<<" not in text or any("<<" in word for word in said) else [it.name for it in named_in(said, text)]


def _files(words: Sequence[Word], launch: str) -> list[str]:
    return [path for word in words for path in (_existing(word.text, launch),) if path is not None]


def _existing(word: str | None, launch: str) -> str | None:
    """The file that a word of a command means: from here, from beside the launch script, or from above it."""
    if word is None:
        return None
    word = word.partition("=")[2] if word.startswith("--") else word
    if not word.endswith((".py", ".yaml", ".yml", ".json")):
        return None
    if os.path.isfile(word):
        return os.path.normpath(word)
    folder = os.path.dirname(os.path.abspath(launch))
    while True:
        path = os.path.join(folder, word)
        if os.path.isfile(path):
            return os.path.relpath(path)
        if os.path.dirname(folder) == folder or os.path.isdir(os.path.join(folder, ".git")):
            return None
        folder = os.path.dirname(folder)
