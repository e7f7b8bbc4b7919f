"""Options of a parser of command lines, and what the words of a command give to them, as ``argparse`` reads them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..values import ABSENT, UNKNOWN, Absent, Call, Const, Ref, Seq, Value, truth

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: What an option holds when it is not given, by its action.
UNSET: dict[object, object] = {"store_true": False, "store_false": True, "count": None, "append": None}
#: What an option stores that stands alone.
_STORED = {"store_true": True, "store_false": False}
#: Those that take words.
_TAKE_ONE = ("store", "append")
_NEGATIVE = re.compile(r"-\.?\d")
#: `action=argparse.BooleanOptionalAction`: `--name` and `--no-name`.
BOTH_WAYS = "argparse.BooleanOptionalAction"


class Option(NamedTuple):
    """One option, or one argument without a name: how it is written, and what its words come to."""

    #: `--name`, `-n`; of a positional argument its name.
    flags: tuple[str, ...]
    #: The attribute, or the parameter, that holds it.
    name: str
    #: What it holds when it is not given, as it is declared.
    default: Value
    #: What it does with its words, as ``argparse`` calls that; None where that is not known.
    action: str | None = "store"
    #: What makes a value of a word; ABSENT for texts.
    kind: Value = ABSENT
    #: How many words it takes, as ``argparse`` says it; ABSENT for one.
    takes: Value = ABSENT
    #: What it holds when it stands without a word.
    const: Value = ABSENT
    is_required: bool = False
    #: The ways to write that it is off: `--no-name`.
    off: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """The way to write it that a user reads."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    @property
    def is_positional(self) -> bool:
        """Whether it has no name on the command line."""
        return not self.flags[0].startswith("-")


def argparse_option(call: Call) -> Option | None:
    """What `parser.add_argument(...)` declares; None where its name is not known."""
    flags = tuple(flag.value for flag in call.args if isinstance(flag, Const) and isinstance(flag.value, str))
    if not flags:
        return None
    long = next((flag for flag in flags if flag.startswith("--")), flags[0])
    destination = call.keyword("dest")
    name = long.lstrip("-").replace("-", "_")
    if isinstance(destination, Const) and isinstance(destination.value, str):
        name = destination.value
    action, default = _action(call), call.keyword("default")
    if isinstance(default, Absent):
        default = Const(UNSET.get(action), call.node)
    kind, count, const = call.keyword("type"), call.keyword("nargs"), call.keyword("const")
    is_required = truth(call.keyword("required")) is True or not flags[0].startswith("-")
    off = negated(flags) if action == BOTH_WAYS else ()
    return Option(flags, name, default, action, kind, count, const, is_required, off)


def negated(flags: Iterable[str]) -> tuple[str, ...]:
    """`--no-name` for each `--name`."""
    return tuple(f"--no-{flag[2:]}" for flag in flags if flag.startswith("--"))


def _action(call: Call) -> str | None:
    match call.keyword("action"):
        case Absent():
            return "store"
        case Const(str(action)):
            return action
        case Ref(name) if name == BOTH_WAYS:
            return name
    return None


class Words(NamedTuple):
    """The words of a command that an option stands with."""

    #: The one that names it.
    flag: Value
    values: tuple[Value, ...]


class Read(NamedTuple):
    """A command as a parser reads it."""

    #: By name of the attribute, the option that is given last, and its words.
    given: dict[str, tuple[Option, Words]]
    #: Whether the command may give more than that: some words are not known.
    open: bool
    #: The words that belong to no option, as those of another parser do.
    rest: tuple[Value, ...] = ()


def read_words(options: Sequence[Option], command: Seq) -> Read:
    """What the words of ``command`` give to ``options``.

    Args:
        options: Those that are declared.
        command: The words, each a text or unknown; it is open when one of these may be several words or none.
    """
    given: dict[str, tuple[Option, Words]] = {}
    loose: list[Value] = []
    words, number = command.items, 0
    while number < len(words):
        word, number = words[number], number + 1
        flag, equal, value = str(word.value).partition("=") if isinstance(word, Const) else ("", "", "")
        option = _named(options, flag) if is_flag(word) else None
        if option is None:
            loose.append(word)
            continue
        values: Sequence[Value] = (
            [Const(value, word.node)] if equal else words[number:][: _taken(option, words[number:])]
        )
        number += 0 if equal else len(values)
        given[option.name] = (option, Words(Const(flag, word.node), tuple(values)))
    is_open = command.open or any(not isinstance(word, Const) for word in loose)
    rest = () if _take_by_place(options, loose, given) else tuple(loose)
    return Read(given, is_open, rest)


def _take_by_place(options: Iterable[Option], loose: Sequence[Value], given: dict[str, tuple[Option, Words]]) -> bool:
    """Give the words without a name to the arguments without one; whether it is clear which of them gets which."""
    positional = [option for option in options if option.is_positional]
    one_each = all(isinstance(option.takes, Absent) for option in positional)
    if len(positional) != len(loose) or not one_each or any(map(is_flag, loose)):
        return False
    given |= {option.name: (option, Words(word, (word,))) for option, word in zip(positional, loose, strict=True)}
    return True


def is_flag(word: Value) -> bool:
    """Whether a word names an option: `--name`, `-n`, and not a number."""
    match word:
        case Const(str(text)):
            return text.startswith("-") and len(text) > 1 and not _NEGATIVE.match(text)
    return False


def _named(options: Iterable[Option], flag: str) -> Option | None:
    """The option that ``flag`` means: one that is called so, or the only one whose name begins like that."""
    written = [(name, option) for option in options for name in (*option.flags, *option.off)]
    exact = [option for name, option in written if name == flag]
    begun = {name: option for name, option in written if flag.startswith("--") and name.startswith(flag)}
    found = exact[-1:] or list(begun.values())
    return found[0] if len(found) == 1 else None


def _taken(option: Option, following: Sequence[Value]) -> int:
    """How many of the words behind the name of an option are its values."""
    if option.action not in _TAKE_ONE:
        return 0
    until = next((place for place, word in enumerate(following) if is_flag(word)), len(following))
    match option.takes:
        case Absent():
            return min(until, 1)
        case Const(int(count)):
            return min(until, count)
        case Const("?"):
            return min(until, 1)
    return until


def stored(option: Option, words: Words) -> Value | None:
    """What an option holds that stands alone: `store_true`; None for one that takes words, or is not known."""
    match option.action:
        case "store_true" | "store_false" as action:
            return Const(_STORED[action], words.flag.node)
        case "argparse.BooleanOptionalAction":
            is_off = isinstance(words.flag, Const) and words.flag.value in option.off
            return Const(not is_off, words.flag.node)
        case "store_const" | "store" if not words.values:
            return UNKNOWN if isinstance(option.const, Absent) else option.const
    return None
