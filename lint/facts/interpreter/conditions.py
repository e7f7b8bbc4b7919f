"""Which way a condition goes."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..nodes import all_nodes
from ..objects.untouched import is_just_built
from ..values import Const, Dict, Instance, Seq, truth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..values import Value
    from ..walk import Walk


#: Builtins that leave what they get as it is.
_READERS = frozenset(
    ("all", "any", "enumerate", "len", "list", "print", "range", "set", "sorted", "sum", "tuple", "zip")
)


def decided(walk: Walk, test: ast.expr, value: Value) -> bool | None:
    """Whether ``test``, which evaluates to ``value``, surely holds; None when it may go either way.

    What a method reads of its own object is a switch: `self.checkpointing = False` in `__init__` is a default, and
    whoever wrote the branch for True has a way to set it. The same goes for None, but not for numbers and texts. In a
    script that builds and trains the model itself it is no default: there, what the constructors set is what runs.
    """
    known = truth(value)
    if known is None or getattr(walk.scope.node, "name", "") == "__init__":
        return known
    if any(_is_given_away(walk, node.id) for node in ast.walk(test) if isinstance(node, ast.Name)):
        return None
    asked = [*ast.walk(test), *(node for name in _locals(test) for node in _bound_to(walk, name))]
    return None if any(_is_switch(walk, node) for node in asked) else known


def _locals(test: ast.expr) -> Iterator[str]:
    """The variables whose truth a condition asks for."""
    match test:
        case ast.Name(id=name):
            yield name
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _locals(operand)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _locals(value)


def _is_given_away(walk: Walk, name: str) -> bool:
    """Whether other code may fill or bind the variable: an empty list that is passed on, a name that is `nonlocal`."""
    held = walk.scope.names.get(name)
    if not isinstance(walk.scope.node, ast.FunctionDef) or not isinstance(held, Seq | Dict | Const):
        return False
    shared = _shared_in(walk.scope.node)
    return name in shared.rebound or (isinstance(held, Seq | Dict) and not held.items and name in shared.passed_on)


class _Shared(NamedTuple):
    """The names of a function that code outside of it may reach."""

    #: Those that are `nonlocal` in it or in a function inside.
    rebound: frozenset[str]
    #: Those that a call of other code gets, by themselves or for one of their attributes.
    passed_on: frozenset[str]


@lru_cache(maxsize=64)
def _shared_in(function: ast.FunctionDef) -> _Shared:
    rebound, passed = set[str](), set[str]()
    for node in all_nodes(function):
        match node:
            case ast.Nonlocal(names=names):
                rebound.update(names)
            case ast.Call(func=ast.Name(id=name)) if name in _READERS:
                continue
            case ast.Call(args=args, keywords=words):
                given: list[ast.expr] = [*args, *(word.value for word in words)]
                given += [part.value for part in given if isinstance(part, ast.Attribute)]
                passed.update(part.id for part in given if isinstance(part, ast.Name))
    return _Shared(frozenset(rebound), frozenset(passed))


def _bound_to(walk: Walk, name: str) -> Iterator[ast.AST]:
    """What stands in the expressions that a variable is bound to here: `recompute = self.checkpointing and ...`."""
    body = getattr(walk.scope.node, "body", ()) if isinstance(walk.scope.node, ast.FunctionDef) else ()
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                yield from ast.walk(value)


def _is_switch(walk: Walk, node: ast.AST) -> bool:
    if not _is_of_self(node):
        return False
    held = walk.evaluate(node)
    is_open = isinstance(held, Const) and (held.value is None or isinstance(held.value, bool))
    return is_open and not (_is_settled(walk, node) or is_just_built(walk, node))


def _is_settled(walk: Walk, node: ast.AST) -> bool:
    """Whether the attributes that ``node`` reads stay as the constructors of a script set them."""
    script = walk.program.script
    while script is not None and isinstance(node, ast.Attribute):
        owner = walk.evaluate(node.value)
        if not isinstance(owner, Instance) or not script.settles(owner, node.attr):
            return False
        node = node.value
    return script is not None


def _is_of_self(node: ast.AST) -> bool:
    """Whether ``node`` is `self.x` or `self.x.y`."""
    if not isinstance(node, ast.Attribute):
        return False
    base = node.value.value if isinstance(node.value, ast.Attribute) else node.value
    return isinstance(base, ast.Name) and base.id == "self"
