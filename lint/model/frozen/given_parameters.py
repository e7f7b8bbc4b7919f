"""Parameters that a call gives to a module in place of its own: `functional_call(model, parameters, x)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.objects.parsers import Given
from ...facts.values import Choice, Computed, Const, Dict, Param, Result, Seq, Value, options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...facts.values import Call, Loop, Place
    from ..history import History

#: Methods that give another tensor, functions of torch of these names too.
_COMPUTING = frozenset(("detach", "clone", "add", "sub", "mul", "lerp"))
#: Methods that give the tensor itself, marked.
_SAME = frozenset(("requires_grad_", "to", "float", "contiguous"))
#: Bars around an iterator, and around the numbers of a range.
_BARS = frozenset(("tqdm", "track"))
_BAR_OF_RANGE = "trange"
_DICTS = ("dict", "OrderedDict")
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)


def are_computed(run: History, parameters: Value) -> bool:
    """Whether the dict certainly holds other tensors than the module's own."""
    return _surely(run, parameters, lambda way: any(_holds_computed(run, part) for part in _parts(way)))


def _surely(run: History, value: Value, holds: Callable[[Value], bool]) -> bool:
    """Whether ``holds`` is true of ``value`` in each of its ways, those left out that a loop replaces by such a one."""
    ways = options(value)
    found = [way for way in ways if holds(way)]
    return bool(found) and all(way in found or any(_replaces(run, made, way) for made in found) for way in ways)


def _replaces(run: History, made: Value, before: Value) -> bool:
    """Whether ``made`` comes from a loop that starts with ``before``, and that a user lets make a step."""
    inside, outside = _place_of(made), _place_of(before)
    if inside is None or outside is None or inside.walk != outside.walk or inside.deeper_than(outside):
        return False
    around = _loops_around(run, outside)
    loops = [loop for loop in _loops_around(run, inside) if loop not in around]
    return bool(loops) and all(_makes_step(run, loop) for loop in loops)


def _loops_around(run: History, place: Place) -> list[Loop]:
    """The loops around ``place``, those around the calls that led to it among them."""
    callers = run.callers_of(place) or ()
    return [loop for at in (*(caller.place for caller in callers), place) for loop in at.loops]


def _place_of(value: Value) -> Place | None:
    match value:
        case Dict() | Seq():
            return value.place
        case Result(call):
            return call.place
    return None


def _makes_step(run: History, loop: Loop) -> bool:
    """Whether ``loop`` comes to its end once: as the file has it, or by a default that counts the steps."""
    if not isinstance(loop, ast.For) or any(isinstance(it, ast.Break | ast.Continue) for it in all_nodes(loop)):
        return False
    counted = run.calls_at(loop.iter) if isinstance(loop.iter, ast.Call) else []
    return bool(run.program.iterations.get(loop)) or (bool(counted) and all(map(_counts_a_step, counted)))


def _counts_a_step(call: Call) -> bool:
    """Whether ``call`` is a `range`, or a bar around one, with numbers by the defaults of options and functions."""
    library, _, name = call.name.rpartition(".")
    if name in _BARS and call.args:
        shown = call.args[0]
        return isinstance(shown, Result) and _counts_a_step(shown.call)
    if call.name != "builtins.range" and not (name == _BAR_OF_RANGE and library.startswith("tqdm")):
        return False
    match [_usual(end) for end in call.args]:
        case [int(stop)]:
            return stop > 0
        case [int(start), int(stop)]:
            return stop > start
    return False


def _usual(value: Value) -> int | None:
    """The number that ``value`` is unless a user says otherwise."""
    match value:
        case Const(int(number)) | Given(default=Const(int(number))) | Param(default=Const(int(number))):
            return number
        case Computed(node=ast.BinOp(op=ast.Add()), operands=[left, right]):
            one, other = _usual(left), _usual(right)
            return None if one is None or other is None else one + other
    return None


def _parts(value: Value) -> list[Value]:
    """The dicts that `functional_call` is given: one, or several in a sequence."""
    return value.items if isinstance(value, Seq) and not isinstance(value.node, _COMPREHENSIONS) else [value]


def _holds_computed(run: History, value: Value) -> bool:
    match value:
        case Choice():
            return _surely(run, value, lambda way: _holds_computed(run, way))
        case Dict(items) if any(map(_is_computed, items.values())):
            return True
    match value.node:
        case ast.Call(func=made, args=[ast.GeneratorExp(elt=pair) | ast.ListComp(elt=pair)]):
            named = isinstance(made, ast.Name | ast.Attribute) and ast.unparse(made).rpartition(".")[2] in _DICTS
            return named and isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and _computes(pair.elts[1])
        case ast.Call() as made:
            # `dict(zip(names, fast))`
            given = [call.args[0] for call in run.calls_at(made) if len(call.args) == 1]
            zipped = [it.call for it in given if isinstance(it, Result) and it.call.name == "builtins.zip"]
            return any(_surely(run, call.args[1], _holds_computed_elements) for call in zipped if len(call.args) == 2)
    return False


def _holds_computed_elements(value: Value) -> bool:
    if isinstance(value, Result):  # `torch._foreach_sub(values, steps)`
        name = value.call.name
        return name.startswith("torch._foreach_") and not name.endswith("_")
    return isinstance(value, Seq) and any(map(_is_computed, value.items))


def _is_computed(value: Value) -> bool:
    """Whether ``value`` is another tensor than those that it is computed from, in one of its ways at least."""
    for option in options(value):
        match option:
            case Computed(node=ast.BinOp()):
                return True
            case Computed(operands=ways) if any(map(_is_computed, ways)):
                return True
            case Result(call) if call.method in _COMPUTING or (call.method in _SAME and _is_computed(call.receiver)):
                return True
            case Result(call) if call.name.rpartition(".")[2] in _COMPUTING and call.name.startswith("torch."):
                return True
    return False


def _computes(value: ast.expr) -> bool:
    match value:
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=method)):
            return method in _COMPUTING or _computes(inner)
    return False
