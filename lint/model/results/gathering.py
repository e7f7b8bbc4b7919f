"""Methods and properties that give a list of what modules hold: `[block.aux for block in self.blocks]`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.straight import only_value
from .added_up import is_list_of_elements, passed_by
from .stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def gathered_by(nodes: Iterable[ast.AST], stored: Stored) -> Iterator[str]:
    """What is written to get a list, or a dict, of what is ``stored``: `*.aux_losses()`, `*.aux_losses`."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                given = only_value(node)
            case _:
                continue
        is_property = [ast.unparse(it) for it in decorators] == ["property"]
        if _is_list_of(given, stored) and (is_property or not decorators):
            yield f"*.{name}" if is_property else f"*.{name}()"


def _is_list_of(given: ast.expr | None, stored: Stored) -> bool:
    match given:
        case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.DictComp(value=part):
            return stored.is_read_by(part)
        case ast.Call(func=ast.Name("list" | "tuple"), args=[inner]):
            return _is_list_of(inner, stored)
    return False


def elements_of(nodes: Iterable[ast.AST], gathered: str, stored: Stored) -> Iterator[Stored]:
    """What loops and comprehensions among ``nodes`` call the elements of the list or dict ``gathered``."""
    for node in nodes:
        match node:
            case ast.For():
                loops: list[ast.For | ast.comprehension] = [node]
            case ast.GeneratorExp(generators=[*found]) | ast.ListComp(generators=[*found]):
                loops = [*found]
            case _:
                continue
        for name, passed in (pair for loop in loops for pair in passed_by(loop)):
            if is_list_of_elements(_whole(passed), gathered):
                yield Stored(name, stored.node, scope=node)


def _whole(passed: ast.expr) -> ast.expr:
    """The dict of `kept.values()` and `kept.items()`."""
    match passed:
        case ast.Call(func=ast.Attribute(value=held, attr="values" | "items"), args=[]):
            return held
    return passed
