"""Nodes of a syntax tree: how to walk them, and what one of them is.

`ast.walk` asks every node for all of its fields, which costs half of what parsing did.
"""

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


#: Fields that hold an expression that is only read.
_READ = frozenset(
    (
        *("annotation", "args", "bases", "cause", "context_expr", "decorator_list", "exc", "func", "guard", "iter"),
        *("keywords", "msg", "returns", "slice", "subject", "test", "type", "value", "values"),
    )
)


class _Fields(dict[type, tuple[str, ...]]):
    """The fields of each kind of node that may hold nodes worth a visit."""

    def __init__(self, without: frozenset[str], known: dict[type, tuple[str, ...]]) -> None:
        super().__init__(known)
        self._without = without

    def __missing__(self, kind: type) -> tuple[str, ...]:
        fields: tuple[str, ...] = getattr(kind, "_fields", ())
        found = self[kind] = tuple(name for name in fields if name not in self._without)
        return found


_FIELDS = _Fields(_PLAIN, {ast.Constant: ()})
_BINDING_FIELDS = _Fields(_PLAIN | _READ, {ast.Constant: (), ast.Starred: ("value",)})


def inner_nodes(node: ast.AST) -> list[ast.AST]:
    """The nodes right below ``node`` in the order of the grammar, without operators and contexts."""
    return _below(node, _FIELDS)


def binding_nodes(node: ast.AST) -> list[ast.AST]:
    """Those of them that can bind a name in a file without `:=`."""
    return _below(node, _BINDING_FIELDS)


def _below(node: ast.AST, fields: _Fields) -> list[ast.AST]:
    found: list[ast.AST] = []
    for name in fields[type(node)]:
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
        if _FIELDS[type(node)]:  # Most nodes are names and constants.
            stack += inner_nodes(node)


def attribute(node: ast.AST | None) -> ast.Attribute | None:
    """``node`` when it is `value.name`, else None."""
    return node if isinstance(node, ast.Attribute) else None


def expression(node: ast.AST | None) -> ast.expr | None:
    """``node`` when it is an expression, which another one can replace, else None."""
    return node if isinstance(node, ast.expr) else None


def entries(display: ast.Dict) -> dict[str, ast.expr] | None:
    """The values of a dict display by their keys; None when some key is no constant."""
    pairs = zip(display.keys, display.values, strict=True)
    found = {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
    return found if len(found) == len(display.keys) else None


def uncounted(iterated: ast.expr) -> ast.expr:
    """What a loop goes through: `layers` of `enumerate(layers)`."""
    match iterated:
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            return inner
    return iterated


def source_text(node: ast.AST) -> str:
    """``node`` as Python text, for messages and fixes."""
    return ast.unparse(node)


def returned_by(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    """The expressions whose values ``function`` gives back."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    found = (part.value for part in all_nodes(function) if isinstance(part, ast.Return))
    return [value for value in found if value is not None]


def extent(node: ast.AST) -> tuple[int, int]:
    """How much text ``node`` spans, in lines and columns; compares smaller for a part of another node."""
    lines = (getattr(node, "end_lineno", None) or 0) - getattr(node, "lineno", 0)
    return lines, (getattr(node, "end_col_offset", None) or 0) - (0 if lines else getattr(node, "col_offset", 0))


def is_inside(inner: ast.AST, outer: ast.AST) -> bool:
    """Whether the text of ``inner`` lies in that of ``outer``, a node of the same file."""
    return start(outer) <= start(inner) and end(inner) <= end(outer)


def is_behind(node: ast.AST, other: ast.AST) -> bool:
    """Whether ``node`` begins where the text of ``other``, a node of the same file, has ended, or later."""
    return end(other) <= start(node)


def start(node: ast.AST) -> tuple[int, int]:
    """The line and the column where ``node`` begins; zeros for a node without a place."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def end(node: ast.AST) -> tuple[int, int]:
    """The line and the column where ``node`` has ended."""
    return getattr(node, "end_lineno", None) or 0, getattr(node, "end_col_offset", None) or 0
