"""Which of many nodes another node stands in."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from .nodes import end, extent, is_inside, start
from .origin import origin

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable


class Nesting:
    """Nodes of one or more files, found by what stands inside of them: each is asked for in few steps.

    Two nodes of a file stand in one another or apart. So what is around a node is also around the last one that begins
    before it.
    """

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._all = list(nodes)
        self._files: dict[str | None, _File] | None = None

    def innermost(self, node: ast.AST) -> ast.AST | None:
        """The smallest of the nodes that ``node`` stands in; None when it stands in none."""
        if start(node) == (0, 0):  # a node without a place
            outer = (other for other in self._all if is_inside(node, other) and origin(other) == origin(node))
            return min(outer, key=extent, default=None)
        if self._files is None:
            self._files = self._by_file()
        file = self._files.get(origin(node))
        return None if file is None else file.innermost(node)

    def _by_file(self) -> dict[str | None, _File]:
        found: dict[str | None, list[ast.AST]] = {}
        for node in self._all:
            found.setdefault(origin(node), []).append(node)
        return {filename: _File(nodes) for filename, nodes in found.items()}


class _File:
    """The nodes of one file in the order in which they begin, outer ones first."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        nodes.reverse()  # Of several with one place, the first is the innermost.
        nodes.sort(key=lambda node: (start(node), _downwards(end(node))))
        self._nodes = nodes
        self._starts = [start(node) for node in nodes]
        #: For each node the place, in the list, of the one around it; -1 for none.
        self._around: list[int] = []
        open_ones: list[int] = []
        for index, node in enumerate(nodes):
            while open_ones and not is_inside(node, nodes[open_ones[-1]]):
                open_ones.pop()
            self._around.append(open_ones[-1] if open_ones else -1)
            open_ones.append(index)

    def innermost(self, node: ast.AST) -> ast.AST | None:
        index = bisect_right(self._starts, start(node)) - 1
        while index >= 0 and not is_inside(node, self._nodes[index]):
            index = self._around[index]
        return self._nodes[index] if index >= 0 else None


def _downwards(place: tuple[int, int]) -> tuple[int, int]:
    return -place[0], -place[1]
