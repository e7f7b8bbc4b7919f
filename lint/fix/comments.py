"""What a fix does to comments: one that loses any is not safe, because only its author knows what it was worth."""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from typing import TYPE_CHECKING

from ..sources.locator import Locator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Edit


def loses_comments(text: str, edits: Iterable[Edit]) -> bool:
    """Whether a comment of ``text`` is not there any more after ``edits``."""
    locator = Locator(text)
    removed: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for edit in edits:
        begin, end = locator.offsets(edit.span)
        removed += _comments(text[begin:end])
        written += _comments(edit.content)
    return bool(removed - written)


def _comments(text: str) -> Counter[str]:
    """The comments of a piece of code, which need not be complete."""
    found: Counter[str] = Counter()
    if "#" not in text:
        return found
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found[token.string.rstrip()] += 1
    except (tokenize.TokenError, SyntaxError):
        pass  # the piece ends within brackets; its comments came before
    return found
