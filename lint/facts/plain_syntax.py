"""Spellings of an assignment that mean the same are read as one: whoever asks for assignments finds them all."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .nodes import all_nodes
from .origin import stands_for

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCKS = ("body", "orelse", "finalbody")
_ANNOTATION = "_ckpt_lint_annotation"


def in_plain_syntax(tree: ast.Module) -> ast.Module:
    """``tree``, changed in place: `a, b = x, y` as two assignments, `a: T = x` as one that remembers `T`.

    The annotated names of a class body stay: they are the fields of a dataclass.
    """
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                if not isinstance(node, ast.ClassDef):
                    block[:] = [plain for statement in block for plain in _plain(statement)]
                waiting += block
        waiting += getattr(node, "handlers", ())
        waiting += getattr(node, "cases", ())
    return tree


def annotation_of(assignment: ast.Assign) -> ast.expr | None:
    """What the text says the value is: `T` of `a: T = x`."""
    found: ast.expr | None = getattr(assignment, _ANNOTATION, None)
    return found


def _plain(statement: ast.stmt) -> Iterator[ast.stmt]:
    match statement:
        case ast.AnnAssign(target=annotated, annotation=annotation, value=ast.expr() as value):
            plain = ast.Assign([annotated], value)
            setattr(plain, _ANNOTATION, annotation)
            stands_for(plain, statement)
            yield plain
        case ast.Assign(targets=[ast.Tuple(elts=targets) | ast.List(elts=targets)], value=ast.Tuple(elts=values)) if (
            len(targets) == len(values) and _are_apart(targets, values)
        ):
            for target, value in zip(targets, values, strict=True):
                plain = ast.Assign([target], value)
                stands_for(plain, statement)
                # The next one begins behind it, as statements do.
                plain.end_lineno, plain.end_col_offset = value.end_lineno, value.end_col_offset
                if target is not targets[0]:
                    plain.lineno, plain.col_offset = value.lineno, value.col_offset
                yield plain
        case _:
            yield statement


def _are_apart(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    """Whether no value reads what a target before it gets: `a, b = b, a` is no two assignments."""
    bound = set[str]()
    for target, value in zip(targets, values, strict=True):
        if isinstance(value, ast.Starred) or not bound.isdisjoint(_named_in(value)):
            return False
        match target:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name):
                bound.add(name)
            case _:
                return False
    return True


def _named_in(value: ast.expr) -> Iterator[str]:
    for node in all_nodes(value):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
