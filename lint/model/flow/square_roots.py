"""Conditions that pick every k-th iteration of a loop, where k is a square root."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from ...facts.exclusion import parts_that_hold
from ...facts.nodes import all_nodes
from ...facts.objects.classes import method_of, related
from ...facts.origin import origin
from ...facts.parameters import positional_names
from ...facts.values import Attr, Class, Computed, Param, Test, equals, options
from ..calls.call_targets import call_targets
from ..calls.constructors import constructions
from ..calls.put_back import given_for
from ..conditions.constructed import function_around
from ..texts.text_values import bound_in
from .layers_in_turn import condition_of, each_of, is_layer_in_turn, list_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function, Guard, Place, Value
    from ..history import History

    _Assignment: TypeAlias = ast.Assign | ast.AnnAssign

#: Through how many variables and functions a square root is followed.
_HOPS = 3


def square_root(run: History, checkpoint: Call) -> ast.AST | None:
    """Where the `k` is computed from a square root, when one layer in `k` comes to ``checkpoint``; None for others.

    Args:
        run: The program.
        checkpoint: The call that runs, or wraps, a layer.
    """
    is_one_layer = _runs_one_layer(run, checkpoint)
    for guard in checkpoint.place.guards:
        found = _asked(run, checkpoint.place, guard, is_one_layer)
        if found is not None:
            return found
    return _stepped(run, checkpoint) if is_one_layer else None


def _asked(run: History, place: Place, guard: Guard, is_one_layer: bool) -> ast.AST | None:
    """The same for a condition: `i % k == 0`, alone or beside others, in a variable or a function that returns it.

    What a layer runs itself is under a condition that it was built with, one for each: `Block(recompute=i % k == 0)`.
    """
    for asked, holds in parts_that_hold(guard.test, guard.taken):
        built_with = _built_with(run, place.function, asked)
        if built_with is not None:
            meant, function = built_with
        elif is_one_layer:
            meant, function = _in_list(run, place, asked) or _meant(run, place.function, asked)
        else:
            continue
        for part, is_so in parts_that_hold(meant, holds):
            k = _taken_one_in(part, is_so) or _taken_by_membership(run, function, part, is_so)
            if k is None:
                continue
            found = _root(run, function_around(run, k), k) if origin(k) is None else None
            found = found or _made_of_root(run, guard.value, k)
            if found is not None:
                return found
    return None


def _made_of_root(run: History, asked: Value, k: ast.AST) -> ast.AST | None:
    """What makes the `k` of the condition ``asked`` of a square root, where another object holds or computes it."""
    held = next(_values_of(asked, k), None)
    made = [_maker(option) for option in options(held)] if held is not None else []
    return next(iter(made), None) if made and all(_is_root_of(run, node) for node in made) else None


def _maker(held: Value) -> ast.AST | None:
    """The expression that makes ``held``; what a property returns of a parameter that is said to have it."""
    match held:
        case Attr(base=Param(annotation=Class() as cls), name=name):
            function = method_of(cls, name)
            return _returned_by(function) if function is not None and function.decorators else None
    return held.node


def _is_root_of(run: History, node: ast.AST | None) -> bool:
    return isinstance(node, ast.expr) and _comes_of_root(run, node, node, _HOPS)


def _values_of(asked: Value, k: ast.AST) -> Iterator[Value]:
    """What ``k`` is where the condition ``asked`` divides by it."""
    for option in options(asked):
        match option:
            case Computed(operands=[_, right], node=ast.BinOp(right=written)) if written is k:
                yield right
            case Computed(operands=parts) | Test(operands=parts):
                for part in parts:
                    yield from _values_of(part, k)


def _built_with(run: History, function: Function | None, asked: ast.AST) -> tuple[ast.AST, Function | None] | None:
    """The condition that an attribute of a layer holds, for each layer another one, and the function around that."""
    match asked:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if function is not None and function.owner is not None:
            classes = (cls for cls in run.program.classes if related(cls, function.owner))
            held = [option for cls in classes for it in run.uses.writes_to(cls, name) for option in options(it.value)]
            nodes = {it.node for it in held if equals(it, False) is not True}
            node = nodes.pop() if len(nodes) == 1 else None
            if isinstance(node, ast.Compare | ast.UnaryOp | ast.BoolOp):
                return node, function_around(run, node)
    return None


def _in_list(run: History, place: Place, asked: ast.AST) -> tuple[ast.AST, Function | None] | None:
    """The condition that a list holds for each layer, `[i % k == 0 for i in range(n)]`, and the function around it."""
    listed = list_of(asked, place.loops)
    if listed is None:
        return None
    held = _values(run, place.function, listed) if isinstance(listed, ast.Name | ast.Attribute) else [listed]
    each = each_of(held[0]) if len(held) == 1 else None
    return None if each is None else (each, function_around(run, each))


def _stepped(run: History, checkpoint: Call) -> ast.AST | None:
    """The same for a loop that goes from each k-th layer to the next: `for i in range(0, n, k): ... layers[i]`."""
    for loop in checkpoint.place.loops:
        if isinstance(loop, ast.For | ast.comprehension) and _takes_from(checkpoint, loop):
            k = _step(loop.iter)
            found = _root(run, checkpoint.place.function, k) if k is not None and origin(k) is None else None
            if found is not None:
                return found
    return None


def _takes_from(checkpoint: Call, loop: ast.For | ast.comprehension) -> bool:
    """Whether the loop gives the layer itself, or the index at which it stands in a list."""
    match checkpoint.node.args[:1], loop.target:
        case [ast.Name(id=name)], ast.Name(id=target):
            return name == target
        case [ast.Subscript(slice=ast.Name(id=name))], ast.Name(id=target):
            return name == target
    return False


def _step(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """The `k` of `range(start, end, k)` and of `layers[::k]`."""
    match node:
        case ast.Call(func=ast.Name(id="range"), args=[_, _, ast.Name() | ast.Attribute() as k]):
            return k
        case ast.Subscript(slice=ast.Slice(step=ast.Name() | ast.Attribute() as k)):
            return k
        case ast.Call(func=ast.Name(id="set" | "list" | "tuple" | "frozenset"), args=[given]):
            return _step(given)
    return None


def _taken_one_in(part: ast.AST, holds: bool) -> ast.expr | None:
    """The `k` of `i % k == 0` that holds, and of `i % k` that does not; None for others."""
    rest, is_one_in_k = part, not holds
    if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq | ast.NotEq):
        rest, is_one_in_k = part.left, holds == isinstance(part.ops[0], ast.Eq)
    match rest:
        case ast.BinOp(op=ast.Mod(), right=k) if is_one_in_k and not isinstance(k, ast.Constant):
            return k
    return None


def _taken_by_membership(run: History, function: Function | None, part: ast.AST, holds: bool) -> ast.expr | None:
    """The `k` of `i in range(0, n, k)` that holds, also of a set that holds such indices."""
    match part:
        case ast.Compare(ops=[ast.In() | ast.NotIn() as op], comparators=[held]) if holds == isinstance(op, ast.In):
            listed = [held] if not isinstance(held, ast.Name | ast.Attribute) else _values(run, function, held)
            return _step(listed[0]) or _taken_into(listed[0]) if len(listed) == 1 else None
    return None


def _taken_into(listed: ast.expr) -> ast.expr | None:
    """The `k` of a collection of the numbers that it divides."""
    condition = condition_of(listed)
    return None if condition is None else _taken_one_in(condition, True)


def _meant(run: History, function: Function | None, asked: ast.AST) -> tuple[ast.AST, Function | None]:
    """What a variable or a parameter holds, or a function returns where it does not return `False`, and around it."""
    match asked:
        case ast.Name(id=name) if function is not None:
            bound = bound_in(all_nodes(function.node)).get(name)
            passed = _passed(run, function, asked) if bound is None else None
            return (bound or asked, function) if passed is None else (passed, function_around(run, passed))
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


def _runs_one_layer(run: History, checkpoint: Call) -> bool:
    """Whether a checkpoint, or a helper that makes it, runs the layer of this iteration: `layer` or `layers[i]`."""
    given = checkpoint.node.args[0] if checkpoint.node.args else None
    way = run.path_to(checkpoint) or [checkpoint]
    for call, caller in zip(reversed(way), [*reversed(way[:-1]), None], strict=True):
        if given is None or is_layer_in_turn(given, call):
            return given is not None
        function = call.place.function
        given = given_for(function, caller, given) if function is not None and caller is not None else None
    return False


def _values(run: History, function: Function | None, name: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What is assigned to ``name``."""
    return [found.value for found in _assigned(run, function, name) if found.value is not None]


def _root(run: History, function: Function | None, k: ast.expr) -> ast.AST | None:
    """What makes ``k`` of a square root: the only assignment to it, or the only argument that is given for it."""
    found = _assigned(run, function, k)
    if found:
        value = found[0].value if len(found) == 1 else None
        return found[0] if value is not None and _comes_of_root(run, found[0], value, _HOPS) else None
    passed = _passed(run, function, k)
    return passed if passed is not None and _comes_of_root(run, passed, passed, _HOPS) else None


def _passed(run: History, function: Function | None, name: ast.AST) -> ast.expr | None:
    """The one expression that calls of ``function`` give for its parameter ``name``; None for several."""
    if function is None or not isinstance(name, ast.Name) or name.id not in positional_names(function.node):
        return None
    calls = [*constructions(run, function)]
    skips = bool(calls) or function.owner is not None
    names = positional_names(function.node)[skips:]
    given = [call.written_arguments(names).get(name.id) for call in calls or run.calls_of(function)]
    found = {id(it): it for it in given}
    return found.popitem()[1] if len(found) == 1 else None


def _assigned(run: History, function: Function | None, k: ast.expr) -> list[_Assignment]:
    """The assignments to ``k`` in ``function``, in the classes of its object for an attribute; else in the file."""
    tree = run.program.tree
    scopes: list[ast.AST] = [tree if function is None else function.node]
    if function is not None and isinstance(k, ast.Attribute):
        owner = function.owner
        scopes = [tree] if owner is None else [cls.node for cls in run.program.classes if related(cls, owner)]
    return [found for scope in scopes for found in _assignments(scope).get(ast.unparse(k), [])]


@lru_cache(maxsize=16)
def _assignments(scope: ast.AST) -> dict[str, list[_Assignment]]:
    """The assignments in ``scope``, by what each is to."""
    found: dict[str, list[_Assignment]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found.setdefault(ast.unparse(target), []).append(node)
    return found


def _comes_of_root(run: History, at: ast.AST, value: ast.expr, hops: int) -> bool:
    """Whether a square root is in ``value``, by a variable or a function of the program too, whatever a flag says.

    Args:
        run: The program.
        at: Where ``value`` stands.
        value: An expression.
        hops: Through how many more variables and functions to look.
    """
    parts = list(all_nodes(value))
    if any(isinstance(part, ast.IfExp) for part in parts):
        return False
    return any(map(_is_root, parts)) or (hops > 0 and any(_is_made_of(run, at, part, hops) for part in parts))


def _is_made_of(run: History, at: ast.AST, part: ast.AST, hops: int) -> bool:
    """Whether what ``part`` names, or what it calls gives, comes of a square root."""
    match part:
        case ast.Name(ctx=ast.Load()):
            function = function_around(run, at)
            held = _values(run, function, part)
            only = held[0] if len(held) == 1 else (None if held else _passed(run, function, part))
            return only is not None and _comes_of_root(run, only, only, hops - 1)
        case ast.Call():
            targets = {target.function for call in run.calls_at(part) for target in call_targets(call.func)}
            returned = _returned_by(targets.pop()) if len(targets) == 1 else None
            return returned is not None and _comes_of_root(run, returned, returned, hops - 1)
    return False


def _is_root(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in ("sqrt", "isqrt"):
            return True
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
            return True
    return False
