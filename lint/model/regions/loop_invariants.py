"""Names that every iteration of a loop binds to what they meant before: `mask = given`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import is_inside, source_text
from ...facts.scopes import bound_names
from ..flow.iterations import blocks_of
from .free_variables import attributes_bound_by, names_bound_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Loop


def names_changed_by(loop: Loop, node: ast.AST) -> frozenset[str]:
    """The names that mean something else in each iteration of ``loop`` where ``node``, inside it, runs."""
    bound = names_bound_by(loop)
    return bound - _kept(loop, node, bound)


def _kept(loop: Loop, node: ast.AST, bound: frozenset[str]) -> frozenset[str]:
    """The names that a statement which always runs in front of ``node`` binds, as the only one, to what is the same."""
    if isinstance(loop, ast.comprehension):
        return frozenset()
    written, kept = attributes_bound_by(loop), set[str]()
    for statement in _in_front_of(loop, node):
        for name, value in _bindings(statement):
            if _is_same(value, bound - kept, written) and [*bound_names(loop)].count(name) == 1:
                kept.add(name)
    return frozenset(kept)


def _bindings(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    """The names that ``statement`` assigns, with what each is given."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [(name, value)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            return [(name.id, value) for name, value in zip(names, values, strict=True) if isinstance(name, ast.Name)]
    return []


def _in_front_of(block: ast.stmt, node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of ``block`` that have run when control comes to ``node`` in it, in order."""
    for statements in blocks_of(block):
        for index, statement in enumerate(statements):
            if is_inside(node, statement):
                yield from statements[:index]
                yield from _in_front_of(statement, node)


def _is_same(value: ast.expr, changed: AbstractSet[str], written: AbstractSet[str]) -> bool:
    """Whether ``value`` is written with what neither the names nor the attributes that the loop sets can change."""
    match value:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name not in changed
        case ast.Attribute(value=owner):
            return source_text(value) not in written and _is_same(owner, changed, written)
        case ast.Tuple(elts=parts):
            return all(_is_same(part, changed, written) for part in parts)
    return False
