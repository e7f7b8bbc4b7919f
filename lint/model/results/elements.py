"""The variables of loops that go through what a program stores in a dict: `for name, value in kept.items()`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .added_up import passed_by
from .stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def elements_in(nodes: Iterable[ast.AST], stored: Stored) -> Iterator[Stored]:
    """What loops and comprehensions among ``nodes`` call the entries of a dict that holds what is ``stored``."""
    for node in nodes:
        match node:
            case ast.For():
                loops: list[ast.For | ast.comprehension] = [node]
            case ast.GeneratorExp(generators=[*found]) | ast.ListComp(generators=[*found]):
                loops = [*found]
            case _:
                continue
        for name, passed in (pair for loop in loops for pair in passed_by(loop)):
            if _is_all_of(passed, stored):
                yield Stored(name, stored.node, scope=node)


def _is_all_of(passed: ast.expr, stored: Stored) -> bool:
    match passed:
        case ast.Call(func=ast.Name("list" | "tuple" | "reversed"), args=[inner]):
            return _is_all_of(inner, stored)
        case ast.Call(func=ast.Attribute(value=held, attr="values" | "items"), args=[]):
            return stored._replace(key=None).is_read_by(held)
    return False
