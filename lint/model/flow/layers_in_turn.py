"""What stands, in the text of a loop, for the layer of an iteration, and for what a list has for that layer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes
from ...facts.straight import only_value
from ..texts.text_values import bound_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...facts.values import Call
    from ...facts.values.code import Loop

#: Through how many variables and local functions a layer is followed.
_HOPS = 3


def is_layer_in_turn(given: ast.expr, call: Call) -> bool:
    """Whether ``given``, an argument of ``call``, is what a loop takes in each iteration, `layers[i]`, or only runs it.

    `run = layer.forward`, `partial(layer, mask=mask)`, `lambda x: layer(x, mask)` and such a local function run it.
    """
    names = {name for loop in for_loops(call.place.loops) for name in names_in(loop.target)}
    return bool(names) and _runs_one_of(given, names, call, _HOPS)


def for_loops(loops: Sequence[Loop]) -> list[ast.For | ast.comprehension]:
    """Those of ``loops`` that take one element after the other."""
    return [loop for loop in loops if isinstance(loop, ast.For | ast.comprehension)]


def _runs_one_of(given: ast.expr, names: set[str], call: Call, hops: int) -> bool:
    match given:
        case ast.Name(id=name) if name in names:
            return True
        case ast.Subscript(slice=ast.Name(id=name)):
            return name in names
        case ast.Attribute(value=inner, attr="forward" | "__call__"):
            return _runs_one_of(inner, names, call, hops)
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[inner, *_]):
            return _runs_one_of(inner, names, call, hops)
        case ast.Lambda(body=ast.Call(func=inner)):
            return _runs_one_of(inner, names, call, hops)
        case ast.Name(id=name) if hops:
            meant = _local(call).get(name)
            return meant is not None and _runs_one_of(meant, names, call, hops - 1)
    return False


def _local(call: Call) -> Mapping[str, ast.expr]:
    """What the variables of the function around ``call`` are bound to, local functions as what they call alone."""
    function = call.place.function
    nodes = [] if function is None else list(all_nodes(function.node))
    inner = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    values = {node.name: only_value(node) for node in inner if len([it for it in inner if it.name == node.name]) == 1}
    called = {name: value.func for name, value in values.items() if isinstance(value, ast.Call)}
    return {**bound_in(nodes), **called}


def list_of(asked: ast.AST, loops: Sequence[Loop]) -> ast.expr | None:
    """The list that ``asked`` is an element of: `flags[i]`, or `flag` of `for layer, flag in zip(layers, flags)`."""
    match asked:
        case ast.Subscript(value=ast.Name() | ast.Attribute() as held, slice=ast.Name(id=index)):
            return held if any(index in names_in(loop.target) for loop in for_loops(loops)) else None
        case ast.Name(id=name):
            found = (_taken_from(loop.target, loop.iter, name) for loop in for_loops(loops))
            return next((held for held in found if held is not None), None)
    return None


def _taken_from(target: ast.expr, iterated: ast.expr, name: str) -> ast.expr | None:
    """What a loop that goes through ``iterated`` takes its variable ``name`` from."""
    match target, iterated:
        case ast.Name(id=found), _:
            return iterated if found == name else None
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=given) if len(targets) == len(given):
            held = (_taken_from(part, it, name) for part, it in zip(targets, given, strict=True))
            return next((it for it in held if it is not None), None)
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Name(id="enumerate"), args=[given, *_]):
            return _taken_from(inner, given, name)
    return None


def each_of(listed: ast.expr) -> ast.expr | None:
    """What a list, made by one comprehension without a condition, holds for each element; None for other lists."""
    match listed:
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=[inner]):
            return each_of(inner)
        case (
            ast.ListComp(elt=element, generators=[ast.comprehension(ifs=[])])
            | ast.GeneratorExp(elt=element, generators=[ast.comprehension(ifs=[])])
        ):
            return element
    return None


def condition_of(listed: ast.expr) -> ast.expr | None:
    """The condition under which numbers are in a collection: `{i for i in range(n) if ...}`; None for others."""
    match listed:
        case ast.Call(func=ast.Name(id="list" | "tuple" | "set" | "frozenset"), args=[inner]):
            return condition_of(inner)
        case ast.ListComp(elt=ast.Name(id=element), generators=[loop]):
            pass
        case ast.SetComp(elt=ast.Name(id=element), generators=[loop]):
            pass
        case ast.GeneratorExp(elt=ast.Name(id=element), generators=[loop]):
            pass
        case _:
            return None
    is_itself = isinstance(loop.target, ast.Name) and loop.target.id == element
    return loop.ifs[0] if is_itself and len(loop.ifs) == 1 else None
