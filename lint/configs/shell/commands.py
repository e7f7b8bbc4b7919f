"""The commands of a shell script, word by word with their places: as much of the shell as launch scripts use."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from .here_documents import without_bodies
from .makefile import in_shell, read_makefile, variables_of
from .text import RUN, unquoted
from .variables import ASSIGNMENT, OPEN, ArraySet, Raw, branches_of, is_opener, spread_commands, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .makefile import Makefile

_TOKEN = re.compile(
    rf"""
    (?P<space>(?:[ \t]|\\\r?\n)+)
    | (?P<comment>\#[^\r\n]*)
    | (?P<end>\r?\n|;|&&|\|\||\||&)
    | (?P<word>(?:\\.|'[^']*'|"(?:\\.|{RUN}|\$(?!\()|[^"\\$])*"|{RUN}|`[^`]*`|[^\s;&|'"\\])+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
#: How a shell is told that a command follows as one word.
_RUNS_TEXT = re.compile(r"-\w*c\Z")
_ARRAY = re.compile(r"(\w+)(\+?)=\((.*)\Z", re.DOTALL)


class Word(NamedTuple):
    """A word of a command. ``text`` is None when only the shell knows it."""

    text: str | None
    begin: int
    end: int


def read_commands(text: str) -> list[list[Word]]:
    """The commands of ``text`` in order, with what variables and arrays hold there as far as that is plain text."""
    made = read_makefile(text)
    commands, arrays = _split(without_bodies(text)) if made is None else _of_makefile(made, text)
    variables = texts_of(commands)
    return [
        [Word(unquoted(raw.text, variables), raw.begin, raw.end) for raw in command]
        for command in spread_commands(commands, arrays)
        if command
    ]


def _of_makefile(made: Makefile, text: str) -> tuple[list[list[Raw]], list[ArraySet]]:
    """The commands of the recipes, behind an empty one at which the variables are set."""

    def words_between(begin: int, end: int) -> list[Raw]:
        words = _split(text[begin:end])[0]
        return [Raw(raw.text, raw.begin + begin, raw.end + begin) for command in words for raw in command]

    variables = list(variables_of(made, words_between))
    often = Counter(it.name for it in variables)
    texts = {it.name: it.words[0].text for it in variables if len(it.words) == often[it.name] == 1}
    commands, arrays = _split(made.recipes)
    told = [[in_shell(raw, texts) for raw in command] for command in commands]
    return [[], *told], [*variables, *(it._replace(number=it.number + 1) for it in arrays)]


def exported(commands: list[list[Word]], number: int) -> dict[str, Word]:
    """The variables of the environment that command ``number`` runs in, as far as the script sets them."""
    found: dict[str, Word] = {}
    branches = branches_of(commands)
    for command, branch in zip(commands[:number], branches, strict=False):
        words = [word.text for word in command]
        keywords = next((index for index, word in enumerate(words) if not is_opener(word or "")), len(words))
        changed = dict(_set_by(command[keywords + 1 :])) if words[keywords : keywords + 1] == ["export"] else {}
        gone = words if words[keywords : keywords + 1] == ["unset"] else changed
        found = {name: word for name, word in found.items() if name not in gone}
        if branches[number][: len(branch)] == branch:
            found |= changed
    return found | dict(_set_by(commands[number]))


def _set_by(words: list[Word]) -> Iterator[tuple[str, Word]]:
    for word in words:
        match = ASSIGNMENT.match(word.text or "")
        if match is None:
            return
        yield match[1], word._replace(text=None if match[2] else match[3])


def _split(text: str) -> tuple[list[list[Raw]], list[ArraySet]]:
    """The commands of ``text``, and the arrays that are set between them."""
    commands: list[list[Raw]] = [[]]
    arrays: list[ArraySet] = []
    array: list[Raw] | None = None
    for match in _TOKEN.finditer(text):
        raw = Raw(match.group(), match.start(), match.end())
        begins = _ARRAY.match(raw.text) if match.lastgroup == "word" and array is None else None
        if begins is not None:
            arrays.append(ArraySet(len(commands) - 1, begins[1], bool(begins[2]), []))
            array = arrays[-1].words
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
            inner = _commands_in(commands[-1])
            commands += [*inner, []] if inner else []
    return commands, arrays


def _commands_in(command: list[Raw]) -> list[list[Raw]]:
    """The commands in the last word of ``command``, where that is given to a shell: `bash -c "python train.py"`."""
    *before, last = (raw.text for raw in command)
    begin = command[-1].end - len(last)
    if last.startswith("--wrap="):
        last, begin = last.removeprefix("--wrap="), begin + len("--wrap=")
    elif not before or not (before[-1] == "--wrap" or (_RUNS_TEXT.match(before[-1]) and _has_shell(before))):
        return []
    body = last[1:-1]
    if last[:1] not in ("'", '"') or last[-1:] != last[:1] or "\\" in body.replace("\\\n", "") or "$(" in body:
        return []
    found = (
        [raw._replace(begin=raw.begin + begin + 1, end=raw.end + begin + 1) for raw in it] for it in _split(body)[0]
    )
    if last[0] == '"':
        return [inner for inner in found if inner]
    # In single quotes a variable is one of the other shell.
    return [[raw._replace(text=OPEN) if "$" in raw.text else raw for raw in inner] for inner in found if inner]


def _has_shell(words: list[str]) -> bool:
    return any(word.rpartition("/")[2] in ("bash", "sh", "zsh") for word in words)


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
