"""What a loop passes, behind a condition on it: `if not isinstance(layer, nn.BatchNorm2d): checkpoint(layer, x)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeAlias

from ..exclusion import parts_that_hold
from ..identifiers import names_in
from ..nodes import is_inside
from ..objects.containers import is_none, parts_passed
from ..objects.kinds import is_of_kind
from ..values import Choice, Element, Guard, Value, conditional_options

if TYPE_CHECKING:
    from ..walk import Walk

#: Parts of conditions, and whether each came out true.
_Asked: TypeAlias = list[tuple[ast.AST, bool]]


def argument_picked(walk: Walk, node: ast.expr, value: Value) -> Value:
    """``value`` of the argument ``node``: some of what a loop passes, where a condition on its variable is around."""
    if not isinstance(node, ast.Name) or not isinstance(value, Choice | Element):
        return value
    binding = [loop for loop in walk.place.loops if isinstance(loop, ast.For) and node.id in names_in(loop.target)]
    if not binding:
        return value
    guards = [guard for guard in walk.place.guards if is_inside(guard.test, binding[-1])]
    bound = names_in(binding[-1].target)
    asked = [part for guard in guards for part in _asked(guard.test, guard.taken, bound)]
    return _some_of(walk, node, value, asked) if asked else value


def pick(walk: Walk, generator: ast.comprehension) -> None:
    """Let the variables of a comprehension be some of what it passes, where its `if` asks for one of them."""
    bound = names_in(generator.target)
    asked = [part for test in generator.ifs for part in _asked(test, True, bound)]
    if not asked:
        return
    for node in ast.walk(generator.target):
        if isinstance(node, ast.Name) and node.id in walk.scope.names:
            walk.scope.names[node.id] = _some_of(walk, node, walk.scope.names[node.id], asked)


def _asked(test: ast.AST, taken: bool, bound: frozenset[str]) -> _Asked:
    """The parts of a condition that ask for the variables of a loop."""
    return [(part, holds) for part, holds in parts_that_hold(test, taken) if not bound.isdisjoint(names_in(part))]


def _some_of(walk: Walk, node: ast.Name, value: Value, asked: _Asked) -> Value:
    """The modules that ``node`` may be: those that surely are taken, and others under the condition that they are."""
    passed = parts_passed(value) if isinstance(value, Element) else conditional_options(value)
    modules = [(option, own) for option, own in passed if not is_none(option)]
    if len(modules) < 2:
        return value
    answers = [(module, own, _is_taken(walk, node, module, asked)) for module, own in modules]
    taken = [
        (module, own if answer else (*own, Guard(node, module, True)))
        for module, own, answer in answers
        if answer is not False
    ]
    return Choice(tuple(it for it, _ in taken), value.node, tuple(under for _, under in taken)) if taken else value


def _is_taken(walk: Walk, node: ast.Name, module: Value, asked: _Asked) -> bool | None:
    """Whether ``module`` comes through the conditions ``asked``; None where one of them is open for it."""
    answers = [_comes_out(walk, node, module, part, holds) for part, holds in asked]
    return False if False in answers else None if None in answers else True


def _comes_out(walk: Walk, node: ast.Name, module: Value, part: ast.AST, holds: bool) -> bool | None:
    match part:
        case ast.Call(func=ast.Name("isinstance"), args=[ast.Name(id=name), kinds], keywords=[]) if name == node.id:
            answer = is_of_kind(module, walk.evaluate(kinds))
            return None if answer is None else answer is holds
    return None
