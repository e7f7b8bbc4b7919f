"""Which loss a forward pass feeds, followed by name through the statements of one function."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call

#: Methods that cut a value off from the graph.
_CUTS = frozenset(("detach", "item", "tolist", "numpy", "detach_", "no_grad"))


def feeds(tree: ast.AST, source: Call, sink: Call) -> bool:
    """Whether what a call gives surely goes, through plain assignments, into another call.

    Args:
        tree: The module, for calls outside of functions.
        source: The call that gives something.
        sink: The call that may get it, in the same function.
    """
    function = source.place.function
    if sink.place.function is not function:
        return False
    body = tree if function is None else function.node
    wanted = set(names_in(sink.node))
    for statement in reversed(list(_assignments(body, source.node.lineno, sink.node.lineno))):
        targets = _targets(statement)
        value = statement.value
        if value is None or wanted.isdisjoint(targets) or _is_cut(value):
            continue
        if any(node is source.node for node in ast.walk(value)):
            return True
        if not isinstance(statement, ast.AugAssign):
            wanted -= targets
        wanted |= names_in(value)
    return False


def _assignments(body: ast.AST, first: int, last: int) -> Iterator[ast.Assign | ast.AugAssign | ast.AnnAssign]:
    """The assignments between two lines, in the order they are written."""
    found = [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and first <= node.lineno < last
    ]
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _targets(statement: ast.Assign | ast.AugAssign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return set().union(*map(names_in, targets))


def _is_cut(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in _CUTS for node in ast.walk(value))
