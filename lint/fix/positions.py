"""Where the nodes of a libcst module stand, found for one top-level statement when one of its lines is asked for."""

from __future__ import annotations

import ast
from bisect import bisect_right
from typing import TYPE_CHECKING

import libcst as cst
from libcst.metadata import PositionProvider
from libcst.metadata.position_provider import PositionProvidingCodegenState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libcst.metadata import CodeRange

    TopLevel = cst.SimpleStatementLine | cst.BaseCompoundStatement


class Positions:
    """The range of every node.

    libcst finds positions by printing the tree (libcst/metadata/position_provider.py), which takes longer than parsing.
    A finding is about one statement of a module, so only that is printed, from the line where Python's parser has it.
    """

    def __init__(self, module: cst.Module, text: str) -> None:
        self._module = module
        self._statements = list(_top_level(module, ast.parse(text)))
        self._lines = [_first_line(node) for _, node in self._statements]
        self._printed: set[int] = set()
        self._ranges: dict[cst.CSTNode, CodeRange] = {}
        self._by_start: dict[tuple[int, int], list[cst.CSTNode]] = {}
        #: The lines on which statements start, in every block.
        self._starts: list[int] = []

    def starting_at(self, line: int, column: int) -> list[cst.CSTNode]:
        """The nodes that start there; lines count from 1, columns from 0.

        Raises:
            RecursionError: The statement is nested too deeply to be printed.
        """
        self._print(bisect_right(self._lines, line) - 1)
        return self._by_start.get((line, column), [])

    def of(self, node: cst.CSTNode) -> CodeRange:
        """The range of a node that ``starting_at`` gave, or that stands in the same top-level statement."""
        return self._ranges[node]

    def known(self) -> Iterator[cst.CSTNode]:
        """The nodes of every statement that was asked for."""
        return iter(self._ranges)

    def statement_around(self, line: int) -> int:
        """The line on which the statement starts that goes on at ``line``, which is one of a known node."""
        return self._starts[bisect_right(self._starts, line) - 1]

    def _print(self, index: int) -> None:
        if index < 0 or index in self._printed:
            return
        statement, node = self._statements[index]
        leading = len(statement.leading_lines) + node.lineno - self._lines[index]
        ranges = self._ranges_from(statement, node.lineno - leading)
        away = node.lineno - ranges[statement].start.line
        if away:  # a decorator that does not stand behind its `@`
            ranges = self._ranges_from(statement, node.lineno - leading + away)
        for found, place in ranges.items():
            self._by_start.setdefault((place.start.line, place.start.column), []).append(found)
            if isinstance(found, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                self._starts.append(place.start.line)
        self._starts.sort()
        self._ranges.update(ranges)
        self._printed.add(index)

    def _ranges_from(self, statement: TopLevel, line: int) -> dict[cst.CSTNode, CodeRange]:
        provider = PositionProvider()
        state = PositionProvidingCodegenState(self._module.default_indent, self._module.default_newline, provider)
        state.line = line
        try:
            statement._codegen(state)
        except KeyError as error:  # libcst asks for the range of a node that the recursion limit kept it from
            raise RecursionError("libcst cannot print this statement") from error
        return dict(provider._computed)  # type: ignore[arg-type]


def _top_level(module: cst.Module, tree: ast.Module) -> Iterator[tuple[TopLevel, ast.stmt]]:
    """Each statement of a module as libcst reads it, with the first that Python's parser has of it."""
    index = 0
    for statement in module.body:
        yield statement, tree.body[index]
        index += len(statement.body) if isinstance(statement, cst.SimpleStatementLine) else 1


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(node.lineno, *(decorator.lineno for decorator in decorators)) if decorators else node.lineno
