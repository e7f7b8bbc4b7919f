"""Methods by which an object gives a list that it holds: `taps.drain()` for what is in `self.outputs`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import Function, Method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.walk import Program

#: Methods of containers: a call of one alone says nothing about the class of its object.
_OF_CONTAINERS = frozenset((*dir(list), *dir(dict), *dir(set)))


def giving_methods(program: Program, name: str) -> Iterator[str]:
    """What is written to get the list ``name``, `*.outputs`, by a method of the one class that has it: `*.drain()`."""
    field = name.removeprefix("*.")
    for cls in program.classes if field != name else ():
        for method in cls.body.values():
            if not isinstance(method, Function) or method.owner is not cls:
                continue
            several = sum(method.name in other.body for other in program.classes) > 1
            of_others = method.name in _OF_CONTAINERS and not _is_all_that_is_called(program, method)
            if not several and not of_others and _gives(method.node, field):
                yield f"*.{method.name}()"


def _is_all_that_is_called(program: Program, method: Function) -> bool:
    """Whether every call without arguments of a method of this name is one of ``method``."""
    calls = (call for call in program.calls if call.method == method.name and not call.node.args)
    return all(isinstance(call.func, Method) and call.func.function.node is method.node for call in calls)


def _gives(function: ast.AST, field: str) -> bool:
    """Whether all that ``function`` returns is its object's attribute ``field``, perhaps by a variable or a copy."""
    nodes = list(all_nodes(function))
    held = {name for node in nodes for name in _filled_with(node, field)}
    returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    return bool(returned) and all(_is_field(value, field) or _is_one_of(value, held) for value in returned)


def _filled_with(node: ast.AST, field: str) -> Iterator[str]:
    """The variables that ``node`` gives the list: `out, self.outputs = self.outputs, []`."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_field(value, field):
            yield name
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pairs = zip(targets, values, strict=False)
            yield from (it.id for it, value in pairs if isinstance(it, ast.Name) and _is_field(value, field))


def _is_field(value: ast.expr | None, field: str) -> bool:
    match value:
        case ast.Attribute(value=ast.Name("self"), attr=name):
            return name == field
        case ast.Call(func=ast.Name("list" | "tuple"), args=[inner]):
            return _is_field(inner, field)
        case ast.Call(func=ast.Attribute(value=inner, attr="copy"), args=[]):
            return _is_field(inner, field)
    return False


def _is_one_of(value: ast.expr | None, names: set[str]) -> bool:
    return isinstance(value, ast.Name) and value.id in names
