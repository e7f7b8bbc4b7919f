"""Parameters that a call gives to a module in place of its own: `functional_call(model, parameters, x)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import is_inside
from ...facts.objects.attributes import made_at
from ...facts.values import Dict, Param, Result, Seq, Value, conditional_options
from ..flow.ordering import implies

if TYPE_CHECKING:
    from ...facts.values import Call, Guard, Place

#: Methods that give another tensor, functions of torch of these names too.
_COMPUTING = frozenset(("detach", "clone", "add", "sub", "mul", "lerp"))
_DICTS = ("dict", "OrderedDict")
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp)


def are_computed(parameters: Value, call: Call) -> bool:
    """Whether the dict that ``call`` is given certainly holds other tensors than the module's own."""
    return any(_holds_computed(part, call) for part in _parts(parameters))


def _parts(value: Value) -> list[Value]:
    """The dicts that `functional_call` is given: one, or several in a sequence."""
    return value.items if isinstance(value, Seq) and not isinstance(value.node, _COMPREHENSIONS) else [value]


def _holds_computed(value: Value, call: Call) -> bool:
    ways = conditional_options(value)
    made = [(option, under) for option, under in ways if _is_made_of_computed(option)]
    if len(made) == len(ways):
        return True
    places = [_place(option) for option, _ in ways if not _is_made_of_computed(option)]
    return any(_is_bound_by_loop(option, under, places, call) for option, under in made)


def _is_bound_by_loop(value: Value, under: tuple[Guard, ...], before: list[Place | None], call: Call) -> bool:
    """Whether each iteration of a loop binds ``value``, where what was made at ``before`` is bound until then.

    `for _ in range(steps): parameters = {...}`: a loop that never runs would leave the module's own.
    """
    here = _place(value)
    if under or here is None or not here.loops or here.tries or not isinstance(here.loops[-1], ast.For):
        return False
    return implies(call.place, here) and all(
        place is not None and implies(call.place, place) and _is_outside_of_loop(place, here, value.node)
        for place in before
    )


def _is_outside_of_loop(place: Place, inner: Place, node: ast.AST | None) -> bool:
    """Whether all loops around ``place`` are also around the innermost one at ``inner``, or the calls that led there.

    A loop behind it would bind another value.
    """
    depth = len(place.stack)
    if place.stack != inner.stack[:depth] or inner.loops[-1] in place.loops:
        return False
    led_here = (*inner.stack, node)[depth]
    return all(led_here is not None and is_inside(led_here, loop) for loop in place.loops)


def _place(value: Value) -> Place | None:
    """Where the dict was made; None when that is not known."""
    if isinstance(value, Dict | Seq):
        return value.place
    return made_at(value) if isinstance(value, Result | Param) else None


def _is_made_of_computed(value: Value) -> bool:
    match value.node:
        case ast.DictComp(value=computed):
            return _is_computed(computed)
        case ast.Call(func=made, args=[ast.GeneratorExp(elt=pair) | ast.ListComp(elt=pair)]):
            named = isinstance(made, ast.Name | ast.Attribute) and ast.unparse(made).rpartition(".")[2] in _DICTS
            return named and isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and _is_computed(pair.elts[1])
    return False


def _is_computed(value: ast.expr) -> bool:
    match value:
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=method)):
            return method in _COMPUTING or _is_computed(inner)
    return False
