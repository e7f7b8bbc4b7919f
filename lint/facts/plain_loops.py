"""Loops over a chosen part of something are read as loops over all of it with a condition in them.

`for m in [m for m in net.modules() if isinstance(m, Norm)]: m.eval()` says what
`for m in net.modules(): if isinstance(m, Norm): m.eval()` does, and so does `filter`.
"""

from __future__ import annotations

import ast
import copy
import re
from typing import TYPE_CHECKING

from .identifiers import names_in
from .nodes import all_nodes
from .origin import stands_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: What a text has that says such a loop: one over a display or `filter`, or one over a copy of what a module holds.
CHOOSES = re.compile(
    r"(?m:^[ \t]*for[ \t][^\n]*?\bin\s+(?:[\[(]|filter\s*\())"
    r"| in (?:dict|iter|list|tuple)\s*\(\s*[^)\n]*(?:parameters|modules|children)\s*\("
)
#: Calls that hand on what they go through, all of it.
_HAND_ON = frozenset(("list", "tuple", "iter"))
#: Methods that go through a module, by which it is known that a copy holds the same.
_OF_MODULES = re.compile(r"(named_)?(parameters|modules|children)")


def choose_inside(nodes: Iterable[ast.AST]) -> None:
    """Change the loops among ``nodes``, in place."""
    for node in nodes:
        match node:
            case ast.comprehension():
                node.iter = _gone_through(node.iter)
            case ast.For():
                node.iter = _gone_through(node.iter)
                chosen = _comprehension(node.iter)
                if chosen is not None and isinstance(node.target, ast.Name) and not node.orelse:
                    _choose(node, node.target.id, chosen)


def _gone_through(node: ast.expr) -> ast.expr:
    """What a loop over ``node`` goes through: of `list(net.named_modules())` the call inside."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.Call() as inner], keywords=[]) if name in _HAND_ON:
            return inner if _goes_through_module(inner) else node
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(func=ast.Name(id="dict"), args=[ast.Call() as inner], keywords=[]), attr="items"
            ),
            args=[],
            keywords=[],
        ):
            return inner if _goes_through_module(inner) else node
    return node


def _goes_through_module(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and bool(_OF_MODULES.fullmatch(call.func.attr))


def _comprehension(node: ast.expr) -> ast.ListComp | ast.GeneratorExp | None:
    """The comprehension that a loop goes through; for `filter(lambda m: ..., found)` the one that does the same."""
    match node:
        case ast.ListComp(generators=[first, *_]) | ast.GeneratorExp(generators=[first, *_]):
            return node if not first.is_async else None
        case ast.Call(
            func=ast.Name(id="filter"),
            args=[ast.Lambda(args=ast.arguments(args=[ast.arg(arg=name)]), body=test), found],
            keywords=[],
        ):
            target, element = ast.Name(name, ast.Store()), ast.Name(name, ast.Load())
            made = ast.GeneratorExp(element, [ast.comprehension(target, found, [test], 0)])
            for plain in (target, element, made):
                stands_for(plain, node)
            return made
    return None


def _choose(loop: ast.For, name: str, chosen: ast.ListComp | ast.GeneratorExp) -> None:
    """Make ``loop`` go through what ``chosen`` does, with its conditions inside; not where names would clash."""
    if not isinstance(chosen.elt, ast.Name) or not any(each.ifs for each in chosen.generators):
        return
    leaves = any(isinstance(node, ast.Break) for part in loop.body for node in all_nodes(part))
    if len(chosen.generators) > 1 and leaves:
        return
    bound = {name for each in chosen.generators for name in names_in(each.target)}
    inside = {name for part in loop.body for name in names_in(part)}
    others = bound - {chosen.elt.id}
    if chosen.elt.id not in bound or not others.isdisjoint(inside) or (name in bound and name != chosen.elt.id):
        return
    generators = [_renamed(each, chosen.elt.id, name) for each in chosen.generators]
    body = loop.body
    for each in reversed(generators):
        body = list(_under(each.ifs, body))
        if each is not generators[0]:
            body = [_loop(each, body, loop)]
    loop.target, loop.iter, loop.body = generators[0].target, _gone_through(generators[0].iter), body


def _renamed(generator: ast.comprehension, old: str, new: str) -> ast.comprehension:
    """``generator`` with another name for the variable ``old``."""
    if old == new:
        return generator
    renamed = copy.deepcopy(generator)
    for node in all_nodes(renamed):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return renamed


def _under(tests: list[ast.expr], body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """``body`` under all of ``tests``."""
    if not tests:
        yield from body
        return
    test = tests[0]
    if len(tests) > 1:
        test = ast.BoolOp(ast.And(), tests)
        stands_for(test, tests[0])
    condition = ast.If(test, body, [])
    stands_for(condition, body[0])
    yield condition


def _loop(generator: ast.comprehension, body: list[ast.stmt], outer: ast.For) -> ast.For:
    loop = ast.For(generator.target, _gone_through(generator.iter), body, [])
    stands_for(loop, outer)
    return loop
