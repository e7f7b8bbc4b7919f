"""Where `ast` nodes stand in a file that libcst cannot read, such as one with a form feed in an indentation."""

from __future__ import annotations

import ast

from ..facts.origin import origin
from ..finding import Span
from ..sources.locator import Locator

_PLACED = ast.stmt | ast.expr | ast.keyword | ast.arg | ast.excepthandler


class Places:
    """A file as the parser of Python itself sees it: places can be told, but no fix can be built."""

    def __init__(self, text: str, filename: str | None = None) -> None:
        #: As in ``origin``: None for the file that is checked.
        self.filename = filename
        self._locator = Locator(text)

    def place(self, node: ast.AST) -> Span | None:
        """The range of ``node``, of a compound statement only its start; None when it stands in no line of the file."""
        if origin(node) != self.filename or not isinstance(node, _PLACED):
            return None
        start = self._locator.of_bytes(node.lineno, node.col_offset)
        if isinstance(getattr(node, "body", None), list):
            return Span(*start, *start)
        return Span(
            *start, *self._locator.of_bytes(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        )
