"""The arguments that a launch script gives to a training script, as settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..facts.objects.converted import BOOLEANS
from ..facts.values import Const, Dict, equals
from .arguments import ANCHORS, declared_defaults, give_where_missing, parsed_arguments, take_over
from .calls import SettingsNode, call_of
from .document import Document
from .nodes import Entry, Mapping, Opaque, Scalar
from .shell.commands import exported, read_commands
from .shell.here_documents import with_content
from .started_words import without_redirections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..facts.walk import Program
    from .run_files import RunFiles
    from .shell.commands import Word

_SWITCHES = ("gradient_checkpointing", "activation_checkpointing", "ddp_find_unused_parameters")
#: Variables that `accelerate launch` sets for its flags, where they are not called like these.
_FLAGS = {"ACCELERATE_USE_FSDP": "use_fsdp"}
_READ = ("parse_args_into_dataclasses", "parse_args_and_config")


class CommandLine(NamedTuple):
    """What a command says to the script behind its name."""

    document: Document
    #: Every word is known: there is no `$@`.
    complete: bool
    #: The flags of `accelerate launch`; None for another launcher.
    launcher: Document | None = None
    #: The variables of the environment that stand for such flags, by the names of these.
    environment: Document | None = None
    #: The script gets words that are no options: a file that its parser reads instead, or what it takes itself.
    is_positional: bool = False


def read_command(run: RunFiles, text: str | None) -> CommandLine | None:
    """The arguments of the script of ``run`` in ``text``, the launch script that starts it."""
    commands = read_commands(text or "")
    if run.launch is None or run.command >= len(commands):
        return None
    words = commands[run.command]
    named = next((index for index, word in enumerate(words) if (word.text or "").endswith(".py")), -1)
    first = run.argument - 1 if run.argument else named
    if first < 0:
        return None
    given = without_redirections(words[first + 1 :])
    entries = with_content(entries_of(given), text or "")
    root = Mapping(entries, words[first].begin, words[first].end, flow=False)
    around = exported(commands, run.command)
    complete = all(word.text is not None for word in given)
    return CommandLine(
        Document(run.launch, text or "", root),
        complete,
        _launcher(run.launch, text or "", words[:first]),
        _environment(run.launch, text or "", around),
        bool(given) and not (given[0].text or "").startswith("--"),
    )


def _environment(launch: str, text: str, around: dict[str, Word]) -> Document | None:
    """The variables that set FSDP up as flags of `accelerate launch` would."""
    entries = {}
    for variable, word in around.items():
        name = _FLAGS.get(variable, variable.lower())
        if name.startswith(("fsdp_", "use_fsdp")):
            value = Scalar(BOOLEANS.get((word.text or "").lower(), word.text), word.begin, word.end)
            entries[name] = Entry(Scalar(name, word.begin, word.end), value, shared=True)
    first = next(iter(entries.values()), None)
    return first and Document(launch, text, Mapping(entries, first.key.begin, first.key.end, flow=False))


def _launcher(launch: str, text: str, words: list[Word]) -> Document | None:
    """The flags before the script, where `accelerate launch` reads them."""
    said = [word.text for word in words]
    if "accelerate" not in said or "launch" not in said:
        return None
    return Document(launch, text, Mapping(entries_of(words), words[0].begin, words[-1].end, flow=False))


def entries_of(words: Sequence[Word]) -> dict[str, Entry]:
    """The arguments among ``words``, each `--name value` or `--name=value`, by name."""
    entries: dict[str, Entry] = {}
    for index, word in enumerate(words):
        if word.text is None or not word.text.startswith("--"):
            continue
        name, equal, given = word.text[2:].partition("=")
        name = name.replace("-", "_")
        key = Scalar(name, word.begin, word.end)
        after = words[index + 1] if index + 1 < len(words) else None
        if equal:
            entries[name] = Entry(key, Scalar(_value(name, given), word.begin, word.end), shared=True)
        elif after is None or (after.text or "").startswith("--"):
            entries[name] = Entry(key, Scalar(True, word.begin, word.end), shared=True)
        elif after.text is not None:
            entries[name] = Entry(key, Scalar(_value(name, after.text), after.begin, after.end), shared=True)
        else:
            entries[name] = Entry(key, Opaque(after.begin, after.end), shared=True)
    return entries


def _value(name: str, given: str) -> object:
    return BOOLEANS.get(given.lower(), given) if name in _SWITCHES else given


def join_command_line(command: CommandLine, program: Program) -> None:
    """Give the arguments to what the script parses; where all of them are known, nothing is left open."""
    document = command.document
    join_launcher(command, program)
    for call, method in parsed_arguments(program) if not command.is_positional else ():
        if method not in _READ:
            continue
        made = call_of(document, program, call.name, document.root.items, anchors=ANCHORS)
        from_file = isinstance(call.node, SettingsNode)
        complete = command.complete and ("config" not in made.kwargs or from_file)
        written = call.node
        defaults = declared_defaults(call.func)
        made.kwargs = (defaults or {}) | made.kwargs
        take_over(program, call, made, complete and defaults is not None)
        if from_file:
            call.node = written


def join_launcher(command: CommandLine, program: Program) -> None:
    """Give what the launcher sets up to the arguments that say nothing of it."""
    for launcher in filter(None, (command.launcher, command.environment)):
        _join_launcher(launcher.root, program)


def _join_launcher(flags: Dict, program: Program) -> None:
    """What `accelerate launch --use_fsdp` sets up for every Trainer; its flags begin with `fsdp_`."""
    if equals(flags.get("use_fsdp"), True) is True:
        given = {name: value for name, value in flags.items.items() if name.startswith("fsdp_")}
        node = flags.get("use_fsdp").node
        give_where_missing(program, {"fsdp": Const(True, node), "fsdp_config": Dict(given, False, node)})
