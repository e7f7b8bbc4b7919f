"""Conditions that pick every k-th iteration of a loop, where k is a square root."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.exclusion import parts_that_hold
from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, is_inside
from ...facts.objects.classes import related
from ...facts.origin import origin
from ...facts.values import Function
from ..calls.call_targets import call_targets
from ..texts.text_values import bound_in

if TYPE_CHECKING:
    from ...facts.values import Call, Guard, Place
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
            chosen = _chosen_from(part, is_so)
            picked = None if chosen is None else _picked_by_root(run, function, chosen)
            if picked is not None:
                return picked
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


def _chosen_from(part: ast.AST, holds: bool) -> ast.Name | ast.Attribute | None:
    """The `chosen` of `i in chosen` that holds, and of `i not in chosen` that does not; None for others."""
    match part:
        case ast.Compare(left=ast.Name(), ops=[ast.In() | ast.NotIn() as op], comparators=[held]):
            is_among = holds == isinstance(op, ast.In)
            return held if is_among and isinstance(held, ast.Name | ast.Attribute) and origin(held) is None else None
    return None


def _picked_by_root(run: History, function: Function | None, chosen: ast.Name | ast.Attribute) -> ast.Assign | None:
    """Where the numbers in ``chosen`` are set once, to every k-th one, if that k is a square root."""
    found = _assigned(run, function, chosen)
    if len(found) != 1 or _is_changed(run, chosen):
        return None
    numbers: ast.expr = found[0].value
    match numbers:
        case ast.Call(func=ast.Name("set" | "frozenset" | "list" | "tuple"), args=[listed], keywords=[]):
            numbers = listed
    match numbers:
        case ast.Call(func=ast.Name("range"), args=[_, _, step], keywords=[]):
            return found[0] if _is_root_at(run, found[0], step) else None
    return None


def _is_root_at(run: History, assigned: ast.Assign, number: ast.expr) -> bool:
    """Whether ``number``, in an assignment, is a square root, by itself or as the one value of a variable there."""
    if not isinstance(number, ast.Name):
        return _is_of_root(number)
    functions = [it for cls in run.program.classes for it in cls.body.values() if isinstance(it, Function)]
    around = next((it.node for it in functions if is_inside(assigned, it.node)), None)
    values = _assignments(around or run.program.tree).get(number.id, [])
    return len(values) == 1 and _is_of_root(values[0].value)


def _is_changed(run: History, chosen: ast.Name | ast.Attribute) -> bool:
    """Whether numbers may come into ``chosen`` or go out of it: `chosen.add(last)`, `chosen |= more`."""
    return ast.unparse(chosen) in _changed(run.program.tree)


@lru_cache(maxsize=16)
def _changed(tree: ast.AST) -> frozenset[str]:
    """What a method is called of, and what an augmented assignment changes."""
    calls = (part.func for part in ast.walk(tree) if isinstance(part, ast.Call))
    called = (func.value for func in calls if isinstance(func, ast.Attribute))
    changed = (part.target for part in ast.walk(tree) if isinstance(part, ast.AugAssign))
    return frozenset(map(ast.unparse, (*called, *changed)))


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
