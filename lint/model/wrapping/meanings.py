"""What the names in a function mean in the scope around it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.attributes import get_attribute
from ...facts.values import Seq, Unknown

if TYPE_CHECKING:
    from ...facts.values import Function, Instance, Value


def meaning(node: ast.expr, function: Function, own: Instance | None = None) -> Value:
    """The value of a name, a dotted name or a display of them, as the scope around ``function`` has it.

    Args:
        node: The expression.
        function: What it stands in.
        own: The object whose method this is, where that is known; any object of the class otherwise.
    """
    match node:
        case ast.Name(id=name):
            return function.scope.look_up(name)
        case ast.Attribute(value=ast.Name(id=base), attr=name) if function.owner is not None and base == "self":
            return get_attribute(own or function.owner.instance, name, node)
        case ast.Attribute(value=base, attr=name):
            return get_attribute(meaning(base, function, own), name, node)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return Seq("tuple", [meaning(element, function, own) for element in elements], False, node)
    return Unknown(node)
