"""Comments that silence findings: ``# noqa``, ``# ckpt-lint: ignore[...]``, ``# ckpt-lint: ignore-file``.

Comments are found by the tokenizer, never by a search through the text, so one quoted in a string silences nothing.
A comment belongs to a logical line: after a call that spans five lines it may stand on the first, on the last, or on
the lines of the finding itself.
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..finding import Applicability, Edit, Fix, Span
from ..tool_rules.ckpt901_unused_suppression import silences_nothing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ..finding import Finding


_OWN = re.compile(r"#\s*ckpt-lint:\s*(?P<kind>ignore-file|ignore)\b(?P<list>\s*\[(?P<codes>[^\]]*)\])?", re.IGNORECASE)
_NOQA = re.compile(r"#\s*noqa(?P<list>\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?)?", re.IGNORECASE)
#: ruff's form: alone on its line for the whole file, behind code as a plain `noqa`.
_RUFF = re.compile(
    r"#\s*ruff\s*:\s*noqa(?P<list>\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)?)?", re.IGNORECASE
)
_SKIPPED_TOKENS = frozenset(
    {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
)


_NOQA_KINDS = ("noqa", "ruff: noqa")


class Logical(NamedTuple):
    """A logical line: the physical lines from the first token of a statement (or header) to its last."""

    first: int
    last: int
    decorator: bool


class Suppression(NamedTuple):
    """One comment that silences findings."""

    #: Where the directive stands, without what surrounds it in the comment.
    span: Span
    kind: str  # "noqa", "ruff: noqa", "ignore" or "ignore-file"
    #: The codes and names listed, in the case they are written in; None silences everything, an empty list nothing.
    codes: tuple[str, ...] | None
    #: First and last physical line whose findings are silenced.
    first: int
    last: int
    #: Nothing but the comment stands on its line.
    own_line: bool

    def matches(self, finding: Finding) -> bool:
        """Whether the comment names ``finding``'s code or name (or names nothing at all)."""
        return self.codes is None or any(names(code, finding) for code in self.codes)


class Suppressions(NamedTuple):
    """All of a file's suppressions, and its logical lines."""

    comments: tuple[Suppression, ...]
    logical: tuple[Logical, ...]


NOTHING = Suppressions((), ())


def names(code: str, finding: Finding) -> bool:
    """Whether the entry ``code`` of a suppression's list means ``finding``."""
    return code.upper() == finding.code or code.lower() == finding.name


def may_suppress(text: str) -> bool:
    """A cheap test that rules out almost every file before its comments are read."""
    lowered = text.lower()
    return "noqa" in lowered or "ckpt-lint:" in lowered


def read_suppressions(text: str) -> Suppressions:
    """All suppressions of ``text``; none when it has none or cannot be tokenized."""
    if not may_suppress(text):
        return NOTHING
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return NOTHING
    logical = tuple(_logical_lines(tokens))
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    return Suppressions(tuple(_suppressions(comments, logical)), logical)


def _logical_lines(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[Logical]:
    first: tokenize.TokenInfo | None = None
    last = 0
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            if first is not None:
                yield Logical(first.start[0], last, first.string == "@")
            first = None
        elif token.type not in _SKIPPED_TOKENS:
            first = first or token
            last = token.end[0]


def _suppressions(comments: list[tokenize.TokenInfo], logical: tuple[Logical, ...]) -> Iterator[Suppression]:
    for comment in comments:
        line, column = comment.start
        for found in directives(comment.string, line, column + 1, own_line=not comment.line[:column].strip()):
            first, last = covered(found.kind, line, found.own_line, logical)
            yield found._replace(first=first, last=last)


def directives(comment: str, line: int, column: int, own_line: bool) -> Iterator[Suppression]:
    """What the text of a comment at ``line`` and ``column`` silences, taken to cover its own line."""
    for match in _OWN.finditer(comment):
        yield Suppression(_span(match, line, column), match["kind"].lower(), _listed(match), line, line, own_line)
    noqa, kind = _NOQA.search(comment), "noqa"
    if noqa is None and (noqa := _RUFF.search(comment)) is not None:
        kind = "ruff: noqa"
    # A list that is no list of codes is meant for another tool.
    if noqa is not None and (noqa["codes"] or not noqa["list"]):
        yield Suppression(_span(noqa, line, column), kind, _listed(noqa), line, line, own_line)


def _listed(match: re.Match[str]) -> tuple[str, ...] | None:
    return None if match["codes"] is None else tuple(re.findall(r"[^\s,]+", match["codes"]))


def _span(match: re.Match[str], line: int, column: int) -> Span:
    return Span(line, column + match.start(), line, column + match.end())


def covered(kind: str, line: int, own_line: bool, logical: tuple[Logical, ...]) -> tuple[int, int]:
    """The physical lines that a suppression on ``line`` covers."""
    if kind == "ignore-file" or (kind == "ruff: noqa" and own_line):
        return 1, 2**31
    inside = _logical_at(logical, line)
    if kind in _NOQA_KINDS or not own_line:
        return (inside.first, line) if inside and line == inside.last else (line, line)
    if inside is not None:
        return line + 1, line + 1
    index = bisect_right([item.first for item in logical], line)
    following = logical[index : index + 1]
    first = following[0].first if following else line
    while following and following[0].decorator:
        index += 1
        following = logical[index : index + 1] or following
    return first, following[0].last if following else line


def _logical_at(logical: tuple[Logical, ...], line: int) -> Logical | None:
    index = bisect_right([item.first for item in logical], line) - 1
    return logical[index] if index >= 0 and line <= logical[index].last else None


def _reaches(suppression: Suppression, span: Span, logical: tuple[Logical, ...]) -> bool:
    if suppression.first <= span.line <= suppression.last:
        return True
    at = _logical_at(logical, span.line)
    if at is None or (suppression.own_line and suppression.kind == "ignore"):
        return False
    # At the end of a line: the first of the statement, or one of the finding within its statement.
    line = suppression.span.line
    return line == at.first or span.line <= line <= min(span.end_line, at.last)


def suppress(findings: Iterable[Finding], suppressions: Suppressions) -> tuple[list[Finding], set[tuple[Span, str]]]:
    """The findings that are left, and which entry of which suppression was used: ``(its span, code)``."""
    left: list[Finding] = []
    used: set[tuple[Span, str]] = set()
    for finding in findings:
        hits = [
            suppression
            for suppression in suppressions.comments
            if suppression.matches(finding) and _reaches(suppression, finding.span, suppressions.logical)
        ]
        if not hits:
            left.append(finding)
        for hit in hits:
            used |= {(hit.span, code) for code in hit.codes or ("",) if not code or names(code, finding)}
    return left, used


def unused(
    filename: str,
    suppressions: Suppressions,
    used: Collection[tuple[Span, str]],
    judged: Collection[str],
    text: str,
) -> Iterator[Finding]:
    """A finding for every entry of a suppression that silenced nothing.

    A bare comment is never reported: a bare ``# noqa`` may be meant for another tool.

    Args:
        filename: The file.
        suppressions: Its comments.
        used: The comments, by their place, and the codes that they silenced.
        judged: The codes and names of the rules that ran.
        text: The text of the file.
    """
    lines = re.split(r"\r\n|\r|\n", text)
    for suppression in suppressions.comments:
        ours = [code for code in suppression.codes or () if code.upper() in judged or code.lower() in judged]
        idle = [code for code in ours if (suppression.span, code) not in used]
        if idle:
            removal = _removal(suppression, idle, lines[suppression.span.line - 1])
            yield silences_nothing(filename, suppression.span, idle, removal)


def _removal(suppression: Suppression, idle: list[str], line: str) -> Fix:
    span = suppression.span
    kept = [code for code in suppression.codes or () if code not in idle]
    if kept:
        codes = ", ".join(kept)
        is_noqa = suppression.kind in _NOQA_KINDS
        content = f"# {suppression.kind}: {codes}" if is_noqa else f"# ckpt-lint: {suppression.kind}[{codes}]"
        return Fix(Applicability.SAFE, "Remove the unused codes", (Edit(span, content),))
    before, after = line[: span.column - 1], line[span.end_column - 1 :]
    if not before.strip() and not after.strip():
        span = Span(span.line, 1, span.line + 1, 1)
    elif not after.strip().lstrip("#").strip():
        span = span._replace(column=len(before.rstrip()) + 1, end_column=len(line) + 1)
    elif after.lstrip().startswith("#"):
        span = span._replace(end_column=span.end_column + len(after) - len(after.lstrip()))
    else:
        # What follows is the reason the author gave: it stays a comment.
        return Fix(Applicability.SAFE, "Remove the unused suppression", (Edit(span, "#"),))
    return Fix(Applicability.SAFE, "Remove the unused suppression", (Edit(span, ""),))


def comment_row(text: str, line: int) -> int:
    """The first line from ``line`` on that can end with a comment: not inside a string, not before a backslash."""
    for first, last in _tokens_over_lines(text):
        if first <= line < last:
            line = last
    lines = re.split(r"\r\n|\r|\n", text)
    while line < len(lines) and lines[line - 1].endswith("\\"):
        line += 1
    return line


@lru_cache(maxsize=4)
def _tokens_over_lines(text: str) -> tuple[tuple[int, int], ...]:
    """First and last line of every token that spans lines (strings do)."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text, newline="").readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return ()
    return tuple((token.start[0], token.end[0]) for token in tokens if token.start[0] < token.end[0])
