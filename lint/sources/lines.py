"""Lines as Python counts them: they end with ``\\n``, ``\\r\\n`` or ``\\r`` and nothing else."""

from __future__ import annotations

import re

_NEWLINE = r"\r\n|\r|\n"


def line_starts(text: str) -> list[int]:
    """The offset at which each line starts; Python's line ends (``\\n``, ``\\r\\n``, ``\\r``) and no others."""
    return [0, *(match.end() for match in re.finditer(_NEWLINE, text))]


def split_lines(text: str) -> list[str]:
    """The lines of ``text`` without their ends."""
    return re.split(_NEWLINE, text)


def newline_of(text: str) -> str:
    """The line end the text uses (that of its first line), ``\\n`` when it has one line only."""
    match = re.search(_NEWLINE, text)
    return match.group() if match else "\n"
