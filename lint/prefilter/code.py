"""What of a Python text is code: words count there, and not in comments or docstrings."""

from __future__ import annotations

import re
from functools import lru_cache

_IN_THREE = r"{0}[^{1}\\]*(?:(?:\\[\s\S]|{1}(?!{1}{1}))[^{1}\\]*)*{0}"
_IN_ONE = r"{0}[^{0}\\\n]*(?:\\[\s\S][^{0}\\\n]*)*{0}"
#: A string or a comment; compiled on first use.
_PARTS = "|".join(
    (*(_IN_THREE.format(3 * quote, quote) for quote in "\"'"), *(_IN_ONE.format(quote) for quote in "\"'"), "#[^\n\r]*")
)
#: Strings with code in them: what looks like a comment behind one may be a part of it.
_FORMATTED = ('f"', "f'", 't"', "t'")


@lru_cache(maxsize=4)
def code_of(text: str) -> str:
    """``text`` without its comments and without the strings that are statements.

    Nothing else is lost: where it cannot be told, all is left as it is.
    """
    if _is_of_other_encoding(text):
        return text
    kept: list[str] = []
    unread: list[str] = []
    kept_to = end = depth = 0
    for match in re.finditer(_PARTS, text):
        before, (start, end) = end, match.span()
        unread.append(text[before:start])
        if text[start] == "#":
            if _is_behind_formatted(text, start):
                continue
        elif not _is_in_three(text, start, end) or not _begins_line(unread[-1], before):
            continue
        else:
            depth += _opened("".join(unread))
            unread.clear()
            if depth:
                continue
        kept.append(text[kept_to:start])
        kept_to = end
    kept.append(text[kept_to:])
    return "".join(kept)


def _is_of_other_encoding(text: str) -> bool:
    """Whether the first two lines name an encoding, in which a byte of a letter may look like a quote."""
    head = "".join(text.split("\n", 2)[:2])
    return "coding" in head and "utf" not in head


def _is_in_three(text: str, start: int, end: int) -> bool:
    """Whether the string there is one in three quotes."""
    return end - start > 5 and text[start] == text[start + 1] == text[start + 2]


def _begins_line(between: str, end: int) -> bool:
    """Whether a string begins a line that does not go on with the one before.

    Args:
        between: What stands between the last string or comment and this one.
        end: Where that one ends.
    """
    before = between.rstrip("rRuU").rstrip(" \t\f")
    if not before:
        return end == 0
    return before[-1] in "\r\n" and not before.rstrip("\r\n").endswith("\\")


def _opened(text: str) -> int:
    """How many more brackets are opened than closed in ``text``."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


def _is_behind_formatted(text: str, position: int) -> bool:
    line = text[text.rfind("\n", 0, position) + 1 : position].lower()
    return any(quote in line for quote in _FORMATTED)
