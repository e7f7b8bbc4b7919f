"""Input that cannot be analysed."""

from __future__ import annotations


class SourceError(Exception):
    """The bytes are not a text that can be analysed; ``str()`` is one sentence for the user."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
