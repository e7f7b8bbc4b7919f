"""The commands of a Makefile as a shell script, every character in its place, and the variables that it sets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .variables import OPEN, ArraySet, Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RULE = re.compile(r"(?m)^[^\s#:=][^\n#:=]*:(?![=:])[^\n=]*\n(?:[ \t]*(?:#[^\n]*)?\n)*\t")
#: A line that goes on behind a backslash is one.
_LINE = re.compile(r"(?:[^\n\\]|\\.)*(?:\n|\Z)", re.DOTALL)
_PREFIX = re.compile(r"\t[\t @+-]*")
_ASSIGNMENT = re.compile(
    r"(?P<export>(?:export|override)\s+)*(?P<name>\w+)[ \t]*(?P<how>[:+?]{0,2}=)(?P<value>.*)", re.DOTALL
)
_CONDITION = re.compile(r"[ ]*(?:(?P<begin>ifn?def|ifn?eq)|(?P<end>endif)|else)\b")
_WHOLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\})\Z")
_PART = re.compile(r"\$\$|\$(?:\((\w+)\)|\{(\w+)\})")


class Makefile(NamedTuple):
    """What of a Makefile the shell gets."""

    #: Its recipes, blanks in the place of everything else.
    recipes: str
    #: Where the values of variables are, in order: name, whether it is added to, begin, end; None for an open one.
    variables: list[tuple[str, bool, tuple[int, int] | None]]


def read_makefile(text: str) -> Makefile | None:
    """The recipes and the variables of ``text``; None when it has no rules, as a shell script has none."""
    if "\n\t" not in text or _RULE.search(text) is None:
        return None
    parts: list[str] = []
    variables: list[tuple[str, bool, tuple[int, int] | None]] = []
    depth = 0
    for match in _LINE.finditer(text):
        line = match.group()
        prefix = _PREFIX.match(line)
        if prefix is not None:
            parts.append(" " * prefix.end() + line[prefix.end() :])
            continue
        parts.append(re.sub(r"[^\n]", " ", line))
        condition, assignment = _CONDITION.match(line), _ASSIGNMENT.match(line)
        if condition is not None:
            depth += bool(condition["begin"]) - bool(condition["end"])
        elif assignment is not None:
            begin = match.start() + assignment.start("value")
            # What the environment may have set, or a condition decides, is not known.
            known = assignment["how"] != "?=" and not depth
            place = (begin, match.start() + assignment.end("value")) if known else None
            variables.append((assignment["name"], assignment["how"] == "+=", place))
    return Makefile("".join(parts), variables)


def variables_of(made: Makefile, words_between: Callable[[int, int], list[Raw]]) -> Iterator[ArraySet]:
    """The variables of a Makefile, set before its first command; a value becomes words where it is used.

    Args:
        made: The Makefile.
        words_between: Gives the words of the shell between two places of its text.
    """
    for name, adds, place in made.variables:
        words = [Raw(OPEN, 0, 0)] if place is None else [whole_in_shell(raw) for raw in words_between(*place)]
        yield ArraySet(0, name, adds, words)


def whole_in_shell(raw: Raw) -> Raw:
    """``raw``, when it is one variable, as the shell would name all words of it: `make` puts them in as they are."""
    match = _WHOLE.match(raw.text)
    return raw if match is None else raw._replace(text=f'"${{{match[1] or match[2]}[@]}}"')


def in_shell(raw: Raw, texts: dict[str, str]) -> Raw:
    """``raw`` as the shell gets it: variables of one word, by their ``texts``, put in; `$$` is a dollar sign."""
    if "$" not in raw.text or _WHOLE.match(raw.text):
        return whole_in_shell(raw)

    def put_in(match: re.Match[str]) -> str:
        return "$" if match.group() == "$$" else texts.get(match[1] or match[2], OPEN)

    return raw._replace(text=_PART.sub(put_in, raw.text))
