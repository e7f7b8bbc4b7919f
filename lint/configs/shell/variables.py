"""What the variables and arrays of a shell script hold, command by command."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .text import unquoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ASSIGNMENT = re.compile(r"(?:export\s+)?(\w+)(\+?)=(.*)\Z", re.DOTALL)
_ALL_OF_ARRAY = re.compile(r"""(["']?)\$\{(\w+)\[[@*]\]\}\1\Z""")
_WHOLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))\Z")
_STRING = re.compile(r"""(["'])(.*)\1\Z""", re.DOTALL)
_SPLIT = re.compile(r"(?:(?!\\\r?\n)\S)+")
_FUNCTION = re.compile(r"\w+\(\)\{?\Z|function\Z")
#: What may stand before the first command of a branch or a loop.
_OPENERS = frozenset(("then", "else", "do", "{"))
_LOOPS = frozenset(("for", "while", "until", "select"))
_DECLARING = frozenset(("export", "local", "readonly", "declare", "typeset"))
#: Stands for words that only some runs of the script have.
OPEN = "$?"
#: How many variables in variables are looked into.
_DEPTH = 5


class Raw(NamedTuple):
    """A word as it is written, with its place."""

    text: str
    begin: int
    end: int


class ArraySet(NamedTuple):
    """An array that is set, or added to, before command ``number``."""

    number: int
    name: str
    adds: bool
    words: list[Raw]


class _Way(NamedTuple):
    """The branches and the loops that a command is in."""

    branches: tuple[int, ...]
    loops: tuple[int, ...]

    def holds_at(self, other: _Way) -> bool:
        """Whether a command on ``other`` runs after one on this way only if this one did."""
        branches, loops = other.branches[: len(self.branches)], other.loops[: len(self.loops)]
        return (branches, loops) == self


class _Held(NamedTuple):
    """The words that a variable holds behind a command on ``way``."""

    words: list[Raw]
    way: _Way


class _HasText(Protocol):
    @property
    def text(self) -> str | None: ...


def is_opener(word: str) -> bool:
    """Whether a command may follow ``word``: `then`, or the pattern of a case."""
    return word in _OPENERS or _is_pattern(word)


def _is_pattern(word: str) -> bool:
    """Whether it is the pattern of a case: `fsdp)`."""
    return word.endswith(")") and "(" not in word


def branches_of(commands: Sequence[Sequence[_HasText]]) -> list[tuple[int, ...]]:
    """For each command the branches of `if`, `case` and `[ ... ] &&` that it is in, each by a number of its own."""
    found: list[tuple[int, ...]] = []
    around: list[int] = []
    after_test = False
    for number, command in enumerate(commands):
        first = (command[0].text if command else None) or ""
        if first in ("fi", "esac"):
            around = around[:-1]
        elif first in ("elif", "else") or _is_pattern(first):
            around = [*around[:-1], number]
        found.append((*around, number) if after_test else tuple(around))
        if first in ("if", "case"):
            around.append(number)
        after_test = first in ("[", "[[", "test")
    return found


def _loops_of(commands: Sequence[Sequence[Raw]]) -> Iterator[tuple[int, ...]]:
    around: tuple[int, ...] = ()
    for number, command in enumerate(commands):
        first = command[0].text if command else ""
        around = around[:-1] if first == "done" else around
        yield around
        around = (*around, number) if first in _LOOPS else around


def texts_of(commands: list[list[Raw]]) -> dict[str, str | None]:
    """The text of each variable that the script sets; None for what is not known."""
    found: dict[str, str | None] = {}
    for command, branch in zip(commands, branches_of(commands), strict=True):
        words = _declared(command)
        for raw in words:
            match = ASSIGNMENT.match(raw.text)
            if match is None:
                break
            # Set twice, added to, or in a branch, it depends on the way the shell took.
            known = match[1] not in found and not match[2] and len(words) == 1 and not branch
            found[match[1]] = unquoted(match[3], found) if known else None
    return found


def _declared(command: list[Raw]) -> list[Raw]:
    return [raw for raw in command if raw.text not in _DECLARING and not is_opener(raw.text)]


def spread_commands(commands: list[list[Raw]], arrays: list[ArraySet]) -> Iterator[list[Raw]]:
    """The commands with the words of arrays (`"${NAME[@]}"`) and of strings (`$NAME`) in the place of these."""
    variables = _Variables(commands, arrays)
    for _ in variables.run():
        pass
    variables.start_again()
    yield from variables.run()


class _Variables:
    """The variables of a script while it runs."""

    def __init__(self, commands: list[list[Raw]], arrays: list[ArraySet]) -> None:
        self._commands = commands
        branches, loops = branches_of(commands), _loops_of(commands)
        self._ways = [_Way(*way) for way in zip(branches, loops, strict=True)]
        self._sets = [list(_sets_in(number, command)) for number, command in enumerate(commands)]
        for array in arrays:
            self._sets[array.number].append(array)
        self._often = Counter(it.name for sets in self._sets for it in sets)
        self._has_functions = any(_FUNCTION.match(raw.text) for command in commands for raw in command[:2])
        self._held: dict[str, _Held] = {}

    def start_again(self) -> None:
        """Keep what is set once: a function may use it above the line that sets it."""
        self._held = {name: held for name, held in self._held.items() if self._often[name] == 1}

    def run(self) -> Iterator[list[Raw]]:
        """The commands, each with what variables hold there."""
        for command, way, sets in zip(self._commands, self._ways, self._sets, strict=True):
            yield [raw for word in command for raw in self._spread(word, way, _DEPTH)]
            for it in sets:
                self._set(it, way)

    def _set(self, it: ArraySet, way: _Way) -> None:
        before = self._held.get(it.name)
        if self._has_functions and self._often[it.name] > 1:
            self._held[it.name] = _Held([_open(it)], _Way((), ()))  # Which of them ran is not seen.
        elif not it.adds:
            self._held[it.name] = _Held(self._with_itself(it, way), way)
        elif before is not None and before.way == way:
            self._held[it.name] = _Held([*before.words, *it.words], way)
        else:
            known = before if before is not None and before.way.holds_at(way) else _Held([], _Way((), ()))
            self._held[it.name] = _Held([*known.words, _open(it)], known.way)

    def _with_itself(self, it: ArraySet, way: _Way) -> list[Raw]:
        """The words that it is set to: in `ARGS="$ARGS --more"` those from before."""
        words: list[Raw] = []
        for raw in it.words:
            words += self._spread(raw, way, _DEPTH) if _name_in(raw) == it.name else [raw]
        return words

    def _spread(self, word: Raw, way: _Way, depth: int) -> list[Raw]:
        name = _name_in(word)
        held = self._held.get(name) if name is not None and depth else None
        if held is None:
            return [word]
        if not held.way.holds_at(way):
            return [word._replace(text=OPEN)]
        if len(held.words) == 1 and _WHOLE.match(word.text):
            return [word]  # One word is shown where it is used.
        words = [raw for inner in held.words for raw in self._spread(inner, way, depth - 1)]
        # What is not known is shown where it is used.
        return [word._replace(text=OPEN) if raw.text == OPEN else raw for raw in words]


def _name_in(word: Raw) -> str | None:
    """The variable whose words ``word`` stands for: it is not in quotes, or all of an array."""
    match = _WHOLE.match(word.text)
    if match is not None:
        return match[1] or match[2]
    match = _ALL_OF_ARRAY.match(word.text)
    return match[2] if match is not None else None


def _open(it: ArraySet) -> Raw:
    first = it.words[0] if it.words else Raw("", 0, 0)
    return first._replace(text=OPEN)


def _sets_in(number: int, command: list[Raw]) -> Iterator[ArraySet]:
    """The variables that a command sets for those behind it: one that consists of this alone."""
    words = _declared(command)
    matches = [ASSIGNMENT.match(raw.text) for raw in words]
    for raw, match in zip(words, matches, strict=True):
        if match is not None and all(matches):
            value = Raw(match[3], raw.end - len(match[3]), raw.end)
            yield ArraySet(number, match[1], bool(match[2]), _split(value))


def _split(value: Raw) -> list[Raw]:
    """The words that a string comes to where it is used without quotes."""
    match = _STRING.match(value.text)
    if match is None:
        return [value]
    quote, body = match.groups()
    if quote in body or "$(" in body or "`" in body:
        return [value._replace(text=OPEN)]
    begin = value.begin + 1
    words = (Raw(part.group(), begin + part.start(), begin + part.end()) for part in _SPLIT.finditer(body))
    return [
        raw if quote == '"' and _WHOLE.match(raw.text) else raw._replace(text=f"{quote}{raw.text}{quote}")
        for raw in words
    ]
