"""The variables of a loop that count its iterations."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, is_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Loop


def counters(loop: Loop) -> dict[str, bool]:
    """The names that `enumerate` or `range` binds, by whether they are certainly 0 in the first iteration."""
    return {name: first == 0 for name, first in _counters(loop)}


def first_values(loop: Loop, around: ast.AST, asked: ast.AST) -> dict[str, tuple[int, int, int]]:
    """What names are where ``asked`` reads them in the first three iterations of ``loop``, as far as that is written.

    Those that `enumerate` or `range` counts, and those that the body of ``loop``, in ``around``, sets for the next one:
    `i += 1`, `first = False`.
    """
    counted = {name: (first, first + 1, first + 2) for name, first in _counters(loop) if first is not None}
    return counted | dict(_set_by_hand(loop, around, asked))


def _set_by_hand(loop: Loop, around: ast.AST, asked: ast.AST) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for statement in loop.body if isinstance(loop, ast.For | ast.While) else ():
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=ast.Constant(value=1)):
                for first in _value_before(name, statement, around, asked):
                    yield name, (first, first + 1, first + 2)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(later))):
                for first in _value_before(name, statement, around, asked):
                    yield name, (first, later, later)


def _value_before(name: str, statement: ast.stmt, around: ast.AST, asked: ast.AST) -> Iterator[int]:
    """The number that ``name`` has before a loop, where ``statement``, behind ``asked``, alone sets it anew."""
    named = (node for node in all_nodes(around) if isinstance(node, ast.Name) and node.id == name)
    stores = [node for node in named if not isinstance(node.ctx, ast.Load)]
    if len(stores) != 2 or not is_behind(statement, asked):
        return
    for node in all_nodes(around):
        match node:
            case ast.Assign(targets=[ast.Name() as target], value=ast.Constant(value=int(first))) if any(
                target is it for it in stores
            ) and is_behind(asked, node):
                yield first


def _counters(loop: Loop) -> Iterator[tuple[str, int | None]]:
    if not isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension):
        return
    match loop.target, loop.iter:
        case ast.Tuple(elts=[ast.Name(id=name), *_]), ast.Call(func=ast.Name("enumerate"), args=[_, *given]) as call:
            written = [*given, *(word.value for word in call.keywords)]
            yield name, _number(written[0]) if written else 0
        case ast.Name(id=name), ast.Call(func=ast.Name("range"), args=[start, *others]):
            yield name, _number(start) if others else 0


def _number(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None
