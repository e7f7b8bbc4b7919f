"""The commands of a shell script, word by word with their places: as much of the shell as launch scripts use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Word(NamedTuple):
    """A word of a command. ``text`` is None when only the shell knows it."""

    text: str | None
    begin: int
    end: int


def read_commands(text: str) -> list[list[Word]]:
    """The commands of ``text`` in order; variables that are set once, to plain text, are known."""
    commands: list[list[tuple[str, int, int]]] = [[]]
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "end":
            commands.append([])
        elif match.lastgroup == "word":
            commands[-1].append((match.group(), match.start(), match.end()))
    variables = _variables(commands)
    return [
        [Word(_unquoted(raw, variables), begin, end) for raw, begin, end in command] for command in commands if command
    ]


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


def _variables(commands: list[list[tuple[str, int, int]]]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for command in commands:
        words = [raw for raw, _, _ in command if raw != "export"]
        for raw in words:
            match = _ASSIGNMENT.match(raw)
            if match is None:
                break
            # Set twice, it depends on the way the shell took.
            known = match[1] not in found and len(words) == 1
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
