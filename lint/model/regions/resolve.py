"""What an expression inside a function means, for questions the events do not answer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.attributes import get_attribute
from ...facts.values import Function, Seq, Unknown, Value

if TYPE_CHECKING:
    from collections.abc import Iterator


def meaning(node: ast.expr, function: Function) -> Value:
    """The value of a name, a dotted name or a display of them, as the scope around ``function`` has it."""
    match node:
        case ast.Name(id=name):
            return function.scope.look_up(name)
        case ast.Attribute(value=base, attr=name):
            return get_attribute(meaning(base, function), name, node)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return Seq("tuple", [meaning(element, function) for element in elements], False, node)
    return Unknown(node)


def walk_body(function: Function) -> Iterator[ast.AST]:
    """The nodes of the body of ``function``."""
    body = function.node.body
    for statement in body if isinstance(body, list) else [body]:
        yield from ast.walk(statement)
