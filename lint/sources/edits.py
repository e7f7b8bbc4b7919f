"""Edits of text: several replacements at once, line ends kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lines import newline_of
from .locator import Locator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Edit


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with ``edits`` applied; they must not overlap. New lines get the line end the text uses."""
    locator = Locator(text)
    newline = newline_of(text)
    pieces: list[str] = []
    position = 0
    for edit in sorted(set(edits), key=lambda edit: edit.span):
        begin, end = locator.offsets(edit.span)
        content = edit.content.replace("\r\n", "\n")
        pieces += [text[position:begin], content.replace("\n", newline) if newline != "\n" else content]
        position = end
    return "".join([*pieces, text[position:]])
