"""Conditions that pick every k-th iteration of a loop, where k is a square root."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.exclusion import parts_that_hold
from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes
from ...facts.objects.classes import related
from ...facts.origin import origin
from ..calls.call_targets import call_targets
from ..texts.text_values import bound_in

if TYPE_CHECKING:
    from ...facts.values import Call, Function, Guard, Place
    from ..history import History


def square_root(run: History, place: Place, guard: Guard) -> ast.Assign | None:
    """Where the `k` of ``guard`` is computed from a square root, when one `i` in `k` is taken; None for others.

    Args:
        run: The program.
        place: What stands under the condition.
        guard: A condition around it: `i % k == 0`, alone or beside others, in a variable or a function that returns it.
    """
    for asked, holds in parts_that_hold(guard.test, guard.taken):
        meant, function = _meant(run, place.function, asked)
        for part, is_so in parts_that_hold(meant, holds):
            k = _taken_one_in(part, is_so)
            found = _assigned(run, function, k) if k is not None and origin(k) is None else []
            if len(found) == 1 and _is_of_root(found[0].value):
                return found[0]
    return None


def _taken_one_in(part: ast.AST, holds: bool) -> ast.Name | ast.Attribute | None:
    """The `k` of `i % k == 0` that holds, and of `i % k` that does not; None for others."""
    rest, is_one_in_k = part, not holds
    if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq | ast.NotEq):
        rest, is_one_in_k = part.left, holds == isinstance(part.ops[0], ast.Eq)
    match rest:
        case ast.BinOp(op=ast.Mod(), right=ast.Name() | ast.Attribute() as k) if is_one_in_k:
            return k
    return None


def _meant(run: History, function: Function | None, asked: ast.AST) -> tuple[ast.AST, Function | None]:
    """The expression that a variable holds, or a function returns where it does not return `False`, and around it."""
    match asked:
        case ast.Name(id=name) if function is not None:
            return bound_in(all_nodes(function.node)).get(name, asked), function
        case ast.Call():
            called = {id(call.func): target for call in run.calls_at(asked) for target in call_targets(call.func)}
            targets = {target.function.node: target.function for target in called.values()}
            for target in targets.values() if len(targets) == 1 else ():
                returned = _returned_by(target)
                return (asked, function) if returned is None else (returned, target)
    return asked, function


def _returned_by(function: Function) -> ast.expr | None:
    """What ``function`` returns beside `False`; None for more than one thing."""
    if isinstance(function.node, ast.Lambda):
        return function.node.body
    found = [node.value for node in all_nodes(function.node) if isinstance(node, ast.Return)]
    kept = [value for value in found if not (isinstance(value, ast.Constant) and value.value is False)]
    return kept[0] if len(kept) == 1 else None


def runs_one_layer(checkpoint: Call) -> bool:
    """Whether a checkpoint runs the layer of this iteration, `layer` or `layers[i]`: no segment that begins here."""
    names = {name for loop in checkpoint.place.loops if isinstance(loop, ast.For) for name in names_in(loop.target)}
    match checkpoint.node.args:
        case [ast.Name(id=name), *_] | [ast.Subscript(slice=ast.Name(id=name)), *_]:
            return name in names
    return False


def _assigned(run: History, function: Function | None, k: ast.Name | ast.Attribute) -> list[ast.Assign]:
    """The assignments to ``k`` in ``function``, in the classes of its object for an attribute; else in the file."""
    tree = run.program.tree
    scopes: list[ast.AST] = [tree if function is None else function.node]
    if function is not None and isinstance(k, ast.Attribute):
        owner = function.owner
        scopes = [tree] if owner is None else [cls.node for cls in run.program.classes if related(cls, owner)]
    return [found for scope in scopes for found in _assignments(scope).get(ast.unparse(k), [])]


@lru_cache(maxsize=16)
def _assignments(scope: ast.AST) -> dict[str, list[ast.Assign]]:
    """The assignments in ``scope``, by what each is to."""
    found: dict[str, list[ast.Assign]] = {}
    for node in (part for part in ast.walk(scope) if isinstance(part, ast.Assign)):
        for target in node.targets:
            found.setdefault(ast.unparse(target), []).append(node)
    return found


def _is_of_root(value: ast.expr) -> bool:
    """Whether a square root is in it, whatever a flag says."""
    parts = list(all_nodes(value))
    return any(map(_is_root, parts)) and not any(isinstance(part, ast.IfExp) for part in parts)


def _is_root(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in ("sqrt", "isqrt")
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
            return True
    return False
