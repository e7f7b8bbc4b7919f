"""Where a program reads an attribute by itself, and which of those reads come after a write to it."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, extent, inner_nodes, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.walk import Program, Write

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def is_read(program: Program, name: str) -> bool:
    """Whether the program reads ``.name`` of anything but ``self``."""
    return any(_reads(tree, name) for tree in program.trees)


def is_read_after(program: Program, write: Write) -> bool:
    """Whether ``.field`` of a write is read where the write may have happened: other functions count as later."""
    earlier: set[ast.AST] = set()
    for tree in program.trees:
        body = _innermost(tree, write.node)
        if body is not None:
            earlier = set(_not_after(body, write))
    return any(node not in earlier for tree in program.trees for node in _reads(tree, write.field))


def _reads(tree: ast.AST, name: str) -> list[ast.AST]:
    return _all_reads(tree).get(name, [])


@lru_cache(maxsize=4)
def _all_reads(tree: ast.AST) -> dict[object, list[ast.AST]]:
    """The reads of attributes by their names."""
    found: dict[object, list[ast.AST]] = {}
    nodes = list(all_nodes(tree))
    changed = {node.value for node in nodes if isinstance(node, ast.Subscript) and _is_changed(node)}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self")):
                continue
            case ast.Attribute(attr=attribute, ctx=ast.Load()) if node not in changed:
                found.setdefault(attribute, []).append(node)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=attribute), *_]):
                found.setdefault(attribute, []).append(node)
    return found


def _is_changed(node: ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def _innermost(tree: ast.AST, node: ast.AST) -> ast.AST | None:
    """The function that ``node`` stands in, or the module; None when it stands in another file."""
    nodes, functions = _nodes_in(tree)
    if node not in nodes:
        return None
    return min((function for function in functions if is_inside(node, function)), key=extent, default=tree)


@lru_cache(maxsize=4)
def _nodes_in(tree: ast.AST) -> tuple[frozenset[ast.AST], tuple[ast.AST, ...]]:
    """The nodes of a module, and the functions among them."""
    nodes = frozenset(all_nodes(tree))
    return nodes, tuple(node for node in nodes if isinstance(node, _FUNCTIONS))


def _not_after(body: ast.AST, write: Write) -> Iterator[ast.AST]:
    """The nodes of ``body`` itself that ran before the write, or run only when it does not."""
    line = getattr(write.node, "lineno", 0)
    for node in _own(body):
        if isinstance(node, ast.If) and any(is_inside(write.node, part) for part in node.body):
            for part in node.orelse:
                yield from all_nodes(part)
        if not write.place.loops and getattr(node, "lineno", line) < line:
            yield node


def _own(body: ast.AST) -> Iterator[ast.AST]:
    stack = inner_nodes(body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _FUNCTIONS):
            stack += inner_nodes(node)
