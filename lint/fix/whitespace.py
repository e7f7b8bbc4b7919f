"""The space between the elements of a call or a dict, so that a new one looks like its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Sequence

    Space = cst.BaseParenthesizableWhitespace


def separator_after(elements: Sequence[cst.Arg | cst.BaseDictElement], opening: Space) -> Space:
    """What stands between two elements: what stood between the last two, or after the opening bracket."""
    if len(elements) > 1 and isinstance(elements[-2].comma, cst.Comma):
        return elements[-2].comma.whitespace_after
    return opening if isinstance(opening, cst.ParenthesizedWhitespace) else cst.SimpleWhitespace(" ")


def insert_line(ending: Space, separator: Space) -> tuple[cst.Comma, Space]:
    """The comma before a new last element and the space after it.

    ``ending`` is what stood between the old last element and the closing bracket: a comment at its end of line belongs
    to that element and stays there.
    """
    comment = ending.first_line.comment if isinstance(ending, cst.ParenthesizedWhitespace) else None
    if comment is None or not isinstance(ending, cst.ParenthesizedWhitespace):
        return cst.Comma(whitespace_after=_without_comment(separator)), ending
    line = separator if isinstance(separator, cst.ParenthesizedWhitespace) else ending
    return cst.Comma(
        whitespace_after=line.with_changes(first_line=ending.first_line, empty_lines=())
    ), _without_comment(ending)


def _without_comment(space: Space) -> Space:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    plain = cst.TrailingWhitespace(cst.SimpleWhitespace(""), None, space.first_line.newline)
    return space.with_changes(first_line=plain, empty_lines=() if _is_blank(space) else space.empty_lines)


def _is_blank(space: cst.ParenthesizedWhitespace) -> bool:
    return all(line.comment is None for line in space.empty_lines)
