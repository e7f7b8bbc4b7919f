"""Options of a parser of command lines, and what the words of a command give to them, as ``argparse`` reads them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..values import UNKNOWN, Absent, Call, Const, Ref, Seq, Value

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
_BOTH_WAYS = "argparse.BooleanOptionalAction"


class Option(NamedTuple):
    """One `add_argument`: how it is written, and what its words come to."""

    #: `--name`, `-n`; of a positional argument its name.
    flags: tuple[str, ...]
    #: The attribute that holds it.
    name: str
    #: What it holds when it is not given, as it is declared.
    default: Value
    declared: Call

    @property
    def written(self) -> str:
        """The way to write it that a user reads."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    @property
    def is_positional(self) -> bool:
        """Whether it has no name on the command line."""
        return not self.flags[0].startswith("-")

    @property
    def action(self) -> str | None:
        """What it does with its words; None where that is not known."""
        match self.declared.keyword("action"):
            case Absent():
                return "store"
            case Const(str(action)):
                return action
            case Ref(name) if name == _BOTH_WAYS:
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
    #: Whether there are words that belong to no option, as those of another parser do.
    has_more: bool


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
        option = _named(options, flag) if _is_flag(word) else None
        if option is None:
            loose.append(word)
            continue
        values: Sequence[Value] = (
            [Const(value, word.node)] if equal else words[number:][: _taken(option, words[number:])]
        )
        number += 0 if equal else len(values)
        given[option.name] = (option, Words(Const(flag, word.node), tuple(values)))
    is_open = command.open or any(not isinstance(word, Const) for word in loose)
    return Read(given, is_open, not _take_by_place(options, loose, given))


def _take_by_place(options: Iterable[Option], loose: Sequence[Value], given: dict[str, tuple[Option, Words]]) -> bool:
    """Give the words without a name to the arguments without one; whether it is clear which of them gets which."""
    positional = [option for option in options if option.is_positional]
    one_each = all(isinstance(option.declared.keyword("nargs"), Absent) for option in positional)
    if len(positional) != len(loose) or not one_each or any(map(_is_flag, loose)):
        return False
    given |= {option.name: (option, Words(word, (word,))) for option, word in zip(positional, loose, strict=True)}
    return True


def _is_flag(word: Value) -> bool:
    match word:
        case Const(str(text)):
            return text.startswith("-") and len(text) > 1 and not _NEGATIVE.match(text)
    return False


def _named(options: Iterable[Option], flag: str) -> Option | None:
    """The option that ``flag`` means: one that is called so, or the only one whose name begins like that."""
    written = [(name, option) for option in options for name in _ways_to_write(option)]
    exact = [option for name, option in written if name == flag]
    begun = {name: option for name, option in written if flag.startswith("--") and name.startswith(flag)}
    found = exact[-1:] or list(begun.values())
    return found[0] if len(found) == 1 else None


def _ways_to_write(option: Option) -> Iterable[str]:
    yield from option.flags
    if option.action == _BOTH_WAYS:
        yield from (f"--no-{flag[2:]}" for flag in option.flags if flag.startswith("--"))


def _taken(option: Option, following: Sequence[Value]) -> int:
    """How many of the words behind the name of an option are its values."""
    if option.action not in _TAKE_ONE:
        return 0
    until = next((place for place, word in enumerate(following) if _is_flag(word)), len(following))
    match option.declared.keyword("nargs"):
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
        case "store_const":
            const = option.declared.keyword("const")
            return UNKNOWN if isinstance(const, Absent) else const
        case "argparse.BooleanOptionalAction":
            negative = isinstance(words.flag, Const) and str(words.flag.value).startswith("--no-")
            return Const(not negative, words.flag.node)
        case "store" if not words.values:
            const = option.declared.keyword("const")
            return UNKNOWN if isinstance(const, Absent) else const
    return None
