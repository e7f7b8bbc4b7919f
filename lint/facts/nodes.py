"""Walking a syntax tree. `ast.walk` asks every node for all of its fields, which costs half of what parsing did."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Fields that never hold a node worth a visit.
_PLAIN = frozenset(
    (
        *("arg", "attr", "conversion", "ctx", "id", "is_async", "kind", "level", "module", "op", "ops", "simple"),
        *("type_comment", "type_ignores"),
    )
)


class _Fields(dict[type, tuple[str, ...]]):
    """The fields of each kind of node that may hold nodes."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        fields: tuple[str, ...] = getattr(kind, "_fields", ())
        found = self[kind] = tuple(name for name in fields if name not in _PLAIN)
        return found


_FIELDS = _Fields({ast.Constant: ()})


def inner_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes right below ``node`` in the order of the grammar, without operators and contexts."""
    found: list[ast.AST] = []
    for name in _FIELDS[type(node)]:
        value = getattr(node, name, None)
        if type(value) is list:
            found += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def all_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """``tree`` and every node below it, without operators and contexts, in no particular order."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack += inner_nodes(node)
