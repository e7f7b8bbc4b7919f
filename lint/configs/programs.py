"""Programs that a launch script starts by their name (`swift sft --model ...`): their arguments are the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..facts.values import Dict
from . import is_config
from .command_line import entries_of
from .document import Document
from .kinds import Config, load_kinds
from .nodes import Entry, Mapping, Scalar
from .reading import read_document
from .shell.commands import exported, read_commands
from .shell.here_documents import with_content
from .shell.text import is_one

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .kinds import Kind
    from .run_files import RunFiles
    from .shell.commands import Word

#: Arguments that name files of settings.
_NAMING = ("--config", "--deepspeed", "--fsdp", "--fsdp_config")
#: Variables of the environment that decide how many processes run.
_VARIABLES = ("NPROC_PER_NODE", "NNODES")


class Started(NamedTuple):
    """A program that a command starts."""

    kind: Kind
    arguments: Sequence[Word]


def started_by(words: Sequence[Word]) -> Started | None:
    """The program that a command starts, when it is one whose arguments are known."""
    said = [word.text or "" for word in words]
    for kind in load_kinds():
        begin = kind.arguments_begin(said)
        if begin is not None:
            return Started(kind, words[begin:])
    return None


class Settings(NamedTuple):
    """The settings of a program that a command starts."""

    config: Config
    #: The files that they stand in, the launch script first.
    documents: tuple[Document, ...]


def settings_named(started: Started) -> list[Word]:
    """The words that name files of settings: data that is JSON too is none."""
    named = [word for word in started.arguments[:1] if is_config(word.text or "")]
    for word, value in zip(started.arguments, started.arguments[1:], strict=False):
        if word.text in _NAMING:
            named.append(value)
    return named + [word for word in started.arguments if (word.text or "").startswith(tuple(f"{n}=" for n in _NAMING))]


def read_started(run: RunFiles, text: str, content: Callable[[str], str | None]) -> Settings | None:
    """The arguments of the program that ``run`` starts; None when it starts none that is known.

    Args:
        run: A run that a launch script starts.
        text: The launch script.
        content: Gives the text of a file of the run; None for one that cannot be read.
    """
    commands = read_commands(text)
    if run.launch is None or run.script is not None or run.command >= len(commands):
        return None
    words = commands[run.command]
    started = started_by(words)
    if started is None:
        return None
    entries = with_content(entries_of(started.arguments), text)
    around = exported(commands, run.command) | _given_to(words[: len(words) - len(started.arguments)])
    for name in _VARIABLES:
        if name in around:
            word = around[name]
            entries[name] = Entry(Scalar(name, word.begin, word.end), Scalar(word.text, word.begin, word.end), True)
    begin, end = words[0].begin, words[-1].end
    is_open = not _is_complete(started.arguments, text)
    flags = Document(run.launch, text, Mapping(entries, begin, end, flow=False, open=is_open))
    return _with_file(started, flags, run, content)


def _given_to(words: Sequence[Word]) -> dict[str, Word]:
    """The variables that `env NAME=value` sets for the program behind it."""
    found = {}
    for word in words:
        name, equal, value = (word.text or "").partition("=")
        if equal:
            found[name] = word._replace(text=value)
    return found


def _is_complete(arguments: Sequence[Word], text: str) -> bool:
    """Whether each word that only the shell knows is the value of one argument: `--model $MODEL`, not `$ARGS`."""
    for number, word in enumerate(arguments):
        is_value = number > 0 and (arguments[number - 1].text or "").startswith("--")
        if word.text is None and not (is_value and is_one(text[word.begin : word.end])):
            return False
    return True


def _with_file(started: Started, flags: Document, run: RunFiles, content: Callable[[str], str | None]) -> Settings:
    """The flags together with the file of arguments: the first word, over which they win, or `--config`, which wins."""
    first = next((word.text for word in started.arguments), "--")
    is_first = first is None or not first.startswith("--")
    named = first if is_first else _config_of(flags)
    if named is None and not is_first and "config" not in flags.mapping.entries:
        return Settings(Config(flags, started.kind), (flags,))
    name = next((config for config in run.configs if named is not None and _is_same(config, named)), None)
    held = content(name) if name is not None else None
    document = read_document(name, held) if name is not None and held is not None else None
    ours = flags.root
    if document is None:
        flags.root = Dict(ours.items, True, ours.node)
        return Settings(Config(flags, started.kind), (flags,))
    theirs = document.root
    items = {**theirs.items, **ours.items} if is_first else {**ours.items, **theirs.items}
    document.root = Dict(items, ours.open or theirs.open, theirs.node)
    return Settings(Config(document, started.kind), (flags, document))


def _config_of(flags: Document) -> str | None:
    entry = flags.mapping.entries.get("config")
    given = entry.value if entry is not None else None
    return str(given.value) if isinstance(given, Scalar) else None


def _is_same(path: str, named: str) -> bool:
    return path.endswith(named.rpartition("/")[2])
