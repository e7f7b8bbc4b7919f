"""Spellings that mean the same are read as one: whoever asks for assignments, or for keywords, finds them all."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .nodes import all_nodes
from .origin import stands_for
from .plain_detach import DETACHES, detach_plainly
from .plain_loops import CHOOSES, choose_inside
from .plain_statements import spelled_out

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCKS = ("body", "orelse", "finalbody")
_ANNOTATION = "_ckpt_lint_annotation"
_SPREAD_DISPLAY = re.compile(r"\*\*\s*(?:\{|dict\b)")


def in_plain_syntax(tree: ast.Module, text: str) -> ast.Module:
    """``tree`` of ``text``, changed in place: `f(**{"a": 1})` as `f(a=1)`, loops over a chosen part as conditions in
    them, and assignments in one form.

    `p.requires_grad = i >= 4` becomes an `if`, `a, b = x, y` two assignments, `setattr(a, "b", x)` one, `a: T = x` one
    that remembers `T`; the annotated names of a class body stay: they are the fields of a dataclass.
    """
    spreads, chooses = _SPREAD_DISPLAY.search(text), CHOOSES.search(text)
    detaches = "checkpoint" in text and DETACHES.search(text)
    nodes = [*all_nodes(tree)] if spreads or chooses or detaches else []
    if spreads:
        _spell_keywords_out(nodes)
    if chooses:
        choose_inside(nodes)
    if detaches:
        detach_plainly(nodes)
    _assign_plainly(tree)
    return tree


def spell_keywords_out(tree: ast.AST) -> None:
    """Change the calls in ``tree`` that spread a dict that is written there: `f(**{"a": 1})` to `f(a=1)`."""
    _spell_keywords_out([*all_nodes(tree)])


def _spell_keywords_out(nodes: list[ast.AST]) -> None:
    for call in nodes:
        if isinstance(call, ast.Call):
            call.keywords = [plain for word in call.keywords for plain in _plain_keywords(word)]


def _assign_plainly(tree: ast.Module) -> None:
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


def _plain_keywords(word: ast.keyword) -> list[ast.keyword]:
    """The keywords that `**{"a": 1}` or `**dict(a=1)` gives; ``word`` itself where it is none of these."""
    match word:
        case ast.keyword(arg=None, value=ast.Dict(keys=keys, values=values)):
            names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            if len(names) == len(keys) == len(set(names)):
                return [_keyword(name, value) for name, value in zip(names, values, strict=True)]
        case ast.keyword(arg=None, value=ast.Call(func=ast.Name("dict"), args=[], keywords=words)):
            return [plain for inner in words for plain in _plain_keywords(inner)]
    return [word]


def _keyword(name: str, value: ast.expr) -> ast.keyword:
    plain = ast.keyword(name, value)
    stands_for(plain, value)
    return plain


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
        case ast.Expr(
            value=ast.Call(
                func=ast.Name("setattr"),
                args=[ast.Name() | ast.Attribute() as held, ast.Constant(value=str(name)), value],
                keywords=[],
            ) as call
        ) if name.isidentifier():
            target = ast.Attribute(held, name, ast.Store())
            stands_for(target, call)
            plain = ast.Assign([target], value)
            stands_for(plain, statement)
            yield plain
        case _:
            yield from spelled_out(statement)


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
