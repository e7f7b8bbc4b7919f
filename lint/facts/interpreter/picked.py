"""What a loop passes, behind a condition on it: `if not isinstance(layer, nn.BatchNorm2d): checkpoint(layer, x)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..identifiers import names_in
from ..nodes import is_inside
from ..objects.containers import is_none, parts_passed
from ..values import Choice, Element, Value, conditional_options, one_at

if TYPE_CHECKING:
    from ..walk import Walk


def argument_picked(walk: Walk, node: ast.expr, value: Value) -> Value:
    """``value`` of the argument ``node``: some of what a loop passes, where a condition on its variable is around."""
    if not isinstance(node, ast.Name) or not isinstance(value, Choice | Element):
        return value
    binding = [loop for loop in walk.place.loops if isinstance(loop, ast.For) and node.id in names_in(loop.target)]
    if not binding:
        return value
    tests = [guard.test for guard in walk.place.guards if is_inside(guard.test, binding[-1])]
    bound = names_in(binding[-1].target)
    return value if all(bound.isdisjoint(names_in(test)) for test in tests) else _some_of(node, value)


def pick(walk: Walk, generator: ast.comprehension) -> None:
    """Let the variables of a comprehension be some of what it passes, where its `if` asks for one of them."""
    bound = names_in(generator.target)
    if all(bound.isdisjoint(names_in(test)) for test in generator.ifs):
        return
    for node in ast.walk(generator.target):
        if isinstance(node, ast.Name) and node.id in walk.scope.names:
            walk.scope.names[node.id] = _some_of(node, walk.scope.names[node.id])


def _some_of(node: ast.Name, value: Value) -> Value:
    """Each of several modules that ``node`` may be, under the condition that it is one of those taken."""
    passed = parts_passed(value) if isinstance(value, Element) else conditional_options(value)
    modules = [(option, own) for option, own in passed if not is_none(option)]
    return value if len(modules) < 2 else one_at(node, modules, value.node)
