"""What the names in a function mean in the scope around it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.attributes import get_attribute
from ...facts.values import Seq, Unknown

if TYPE_CHECKING:
    from ...facts.values import Function, Value


def meaning(node: ast.expr, function: Function) -> Value:
    """The value of a name, a dotted name or a display of them, as the scope around ``function`` has it."""
    match node:
        case ast.Name(id=name):
            return function.scope.look_up(name)
        case ast.Attribute(value=ast.Name(id=base), attr=name) if function.owner is not None and base == "self":
            return get_attribute(function.owner.instance, name, node)
        case ast.Attribute(value=base, attr=name):
            return get_attribute(meaning(base, function), name, node)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return Seq("tuple", [meaning(element, function) for element in elements], False, node)
    return Unknown(node)
