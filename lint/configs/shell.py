"""The commands of a shell script, word by word with their places: as much of the shell as launch scripts use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .here_documents import without_bodies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t]|\\\r?\n)+)
    | (?P<comment>\#[^\r\n]*)
    | (?P<end>\r?\n|;|&&|\|\||\||&)
    | (?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]*\)|`[^`]*`|[^\s;&|'"\\])+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(
    r"""'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|\\(?P<escaped>.)|(?P<plain>[^'"\\]+)""", re.DOTALL
)
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_ASSIGNMENT = re.compile(r"(?:export\s+)?(\w+)=(.*)\Z", re.DOTALL)
_ARRAY = re.compile(r"(\w+)(\+?)=\((.*)\Z", re.DOTALL)
_ALL_OF_ARRAY = re.compile(r"""(["']?)\$\{(\w+)\[[@*]\]\}\1\Z""")


class Word(NamedTuple):
    """A word of a command. ``text`` is None when only the shell knows it."""

    text: str | None
    begin: int
    end: int


class _Raw(NamedTuple):
    """A word as it is written, with its place."""

    text: str
    begin: int
    end: int


#: What may stand before the first command of a branch or a loop.
_OPENERS = frozenset(("then", "else", "do", "{"))
#: Stands for words that only some runs of the script have.
_OPEN = "$?"


def read_commands(text: str) -> list[list[Word]]:
    """The commands of ``text`` in order; variables and arrays that are set once, to plain text, are known."""
    commands, arrays = _split(without_bodies(text))
    variables = _variables(commands)
    return [
        [Word(_unquoted(raw.text, variables), raw.begin, raw.end) for word in command for raw in _spread(word, arrays)]
        for command in commands
        if command
    ]


def exported(commands: list[list[Word]], number: int) -> dict[str, Word]:
    """The variables of the environment that command ``number`` runs in, as far as the script sets them."""
    found: dict[str, Word] = {}
    branches = _branches(commands)
    for command, branch in zip(commands[:number], branches, strict=False):
        words = [word.text for word in command]
        keywords = next((index for index, word in enumerate(words) if not _is_opener(word or "")), len(words))
        changed = dict(_set_by(command[keywords + 1 :])) if words[keywords : keywords + 1] == ["export"] else {}
        gone = words if words[keywords : keywords + 1] == ["unset"] else changed
        found = {name: word for name, word in found.items() if name not in gone}
        if branches[number][: len(branch)] == branch:
            found |= changed
    return found | dict(_set_by(commands[number]))


def _branches(commands: Sequence[Sequence[Word | _Raw]]) -> list[tuple[int, ...]]:
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


def _is_opener(word: str) -> bool:
    return word in _OPENERS or _is_pattern(word)


def _is_pattern(word: str) -> bool:
    """Whether it is the pattern of a case: `fsdp)`."""
    return word.endswith(")") and "(" not in word


def _set_by(words: list[Word]) -> Iterator[tuple[str, Word]]:
    for word in words:
        match = _ASSIGNMENT.match(word.text or "")
        if match is None:
            return
        yield match[1], word._replace(text=match[2])


def _split(text: str) -> tuple[list[list[_Raw]], dict[str, list[_Raw]]]:
    """The commands of ``text``, and the words of each array that they set."""
    commands: list[list[_Raw]] = [[]]
    arrays: dict[str, list[_Raw]] = {}
    array: list[_Raw] | None = None
    for match in _TOKEN.finditer(text):
        raw = _Raw(match.group(), match.start(), match.end())
        begins = _ARRAY.match(raw.text) if match.lastgroup == "word" and array is None else None
        if begins is not None:
            array = _array_of(arrays, begins, raw)
            raw = raw._replace(text=begins[3], begin=raw.end - len(begins[3]))
        if array is not None and match.lastgroup == "word":
            closes = raw.text.count(")") > raw.text.count("(")
            raw = raw._replace(text=raw.text.removesuffix(")")) if closes else raw
            array += [raw] if raw.text else []
            array = None if closes else array
        elif array is None and match.lastgroup == "end":
            commands.append([])
        elif array is None and match.lastgroup == "word":
            commands[-1].append(raw)
    return commands, arrays


def _array_of(arrays: dict[str, list[_Raw]], begins: re.Match[str], raw: _Raw) -> list[_Raw]:
    """The array that is set or added to: what comes on top of it may depend on the way that the shell took."""
    name, adds, _ = begins.groups()
    if name not in arrays and not adds:
        arrays[name] = []
        return arrays[name]
    arrays.setdefault(name, []).append(raw._replace(text=_OPEN))
    return []


def _spread(word: _Raw, arrays: dict[str, list[_Raw]]) -> list[_Raw]:
    """The words that ``word`` stands for: those of an array for `"${NAME[@]}"`."""
    match = _ALL_OF_ARRAY.match(word.text)
    return arrays.get(match[2], [word]) if match is not None else [word]


def comments_in(text: str) -> Iterator[tuple[int, str]]:
    """Every comment of ``text``: its offset and what it says."""
    return ((match.start(), match.group()) for match in _TOKEN.finditer(text) if match.lastgroup == "comment")


def command_lines(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of each line begin and end; a line goes on behind a backslash, and in quotes."""
    words: list[re.Match[str]] = []
    for match in _TOKEN.finditer(f"{text}\n"):
        if match.lastgroup == "word":
            words.append(match)
        elif match.group().endswith("\n") and match.lastgroup == "end" and words:
            yield words[0].start(), words[-1].end()
            words = []


def _variables(commands: list[list[_Raw]]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for command, branch in zip(commands, _branches(commands), strict=True):
        words = [raw.text for raw in command if raw.text != "export" and not _is_opener(raw.text)]
        for raw in words:
            match = _ASSIGNMENT.match(raw)
            if match is None:
                break
            # Set twice, or in a branch, it depends on the way the shell took.
            known = match[1] not in found and len(words) == 1 and not branch
            found[match[1]] = _unquoted(match[2], found) if known else None
    return found


def _unquoted(raw: str, variables: dict[str, str | None]) -> str | None:
    parts = []
    for match in _PART.finditer(raw):
        if match.lastgroup == "single":
            parts.append(match["single"])
            continue
        if match.lastgroup == "escaped":
            parts.append(match["escaped"])
            continue
        text = match["double"] if match["double"] is not None else match["plain"]
        expanded = _expanded(text, variables)
        if expanded is None:
            return None
        parts.append(re.sub(r'\\(["\\$`])', r"\1", expanded) if match["double"] is not None else expanded)
    return "".join(parts)


def _expanded(text: str, variables: dict[str, str | None]) -> str | None:
    """``text`` with its variables put in; None when one is not known, or something has to be run."""
    if "$(" in text or "`" in text or (any(char in text for char in "*?") and "$" in text):
        return None
    for match in _VARIABLE.finditer(text):
        if variables.get(match[1] or match[2]) is None:
            return None
    expanded = _VARIABLE.sub(lambda match: variables[match[1] or match[2]] or "", text)
    return None if "$" in expanded else expanded
