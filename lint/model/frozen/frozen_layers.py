"""Which layers of a list a loop freezes: the first ones, where the program says how many."""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ...facts.nodes import is_inside, uncounted
from ...facts.objects.containers import is_slice
from ...facts.parameters import defaults, parameter_names, positional_names
from ...facts.values import UNKNOWN, Attr, Const, Element, Test
from ..conditions.guards import own_guards
from ..events.training import subscripts_around, subscripts_behind
from ..known_models.backbone_parameters import HEAD_PARAMETERS
from ..known_models.backbones import HEADS, HOLDERS, backbone_parameters
from ..libraries.sharding import attributes
from ..texts.given_texts import meant_at
from ..texts.passing_names import is_named_in, name_passes
from ..texts.written_texts import bound_once
from ..wrapping.meanings import meaning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...facts.values import Call, Guard, Value
    from ..events import GradientSwitch
    from ..history import History

    #: Something with a place, where names mean what they mean.
    _At: TypeAlias = GradientSwitch | Call

#: No model is so shallow that one of so many parts has no layer.
_FEW = 4
#: The parameters of heads that a loop over names may leave out.
_HEADS = (*HEAD_PARAMETERS, "lm_head.weight")


def freezes_backbone_by_name(run: History, switch: GradientSwitch) -> bool:
    """Whether a loop over names freezes all that a model of transformers has but its head, whatever its family."""
    comes_to = _test_of_names(run, switch)
    if not switch.freezes or comes_to is None or not any(comes_to(name) is False for name in _HEADS):
        return False  # What it leaves out is no part of these models: adapters, in the layers perhaps.
    # A name that only one family has is meant for a model of it.
    freezes_some = False
    for first, *others in backbone_parameters():
        answer = comes_to(first)
        if answer is None or any(comes_to(name) is not answer for name in others):
            return False
        freezes_some |= answer
    return freezes_some


def spares_backbone_by_name(run: History, switch: GradientSwitch) -> bool:
    """Whether a loop over names comes to the head of a model of transformers alone."""
    comes_to = _test_of_names(run, switch)
    return comes_to is not None and all(comes_to(name) is False for names in backbone_parameters() for name in names)


def trains_head_by_name(run: History, switch: GradientSwitch) -> bool:
    """Whether a loop over names comes to the head of some model of transformers."""
    comes_to = _test_of_names(run, switch)
    return comes_to is not None and any(comes_to(name) is True for name in HEAD_PARAMETERS)


def _test_of_names(run: History, switch: GradientSwitch) -> Callable[[str], bool | None] | None:
    """What says for the name of a parameter whether it comes to ``switch``, or None; None when no loop tests names."""
    guards, loops = [*own_guards(switch.place)], switch.place.loops
    if len(guards) != 1 or not loops:
        return None
    path = tuple(attributes(switch.module))[::-1]
    if path and path[0] not in HOLDERS | HEADS:
        return None
    passes = partial(name_passes, guards[0], meant=meant_at(run.program, switch.place))
    if isinstance(loops[-1], ast.For) and is_named_in(loops[-1]):
        return partial(_comes_to, partial(passes, loops[-1]), path)
    over_children = [loop for loop in loops if isinstance(loop, ast.For) and is_named_in(loop, "named_children")]
    if len(over_children) != 1 or not is_inside(guards[0].test, over_children[0]):
        return None
    return partial(_comes_to, lambda name: passes(over_children[0], name.partition(".")[0]), path)


def _comes_to(passes: Callable[[str], bool | None], path: tuple[str, ...], name: str) -> bool | None:
    """Whether a loop over the names of the part of a model that ``path`` leads to comes to the parameter ``name``."""
    parts = name.split(".")
    if path[:1] == ("base_model",) and parts[0] in HOLDERS:
        parts[0] = "base_model"
    return passes(".".join(parts[len(path) :])) if tuple(parts[: len(path)]) == path else False


def freezes_first_layers(run: History, switch: GradientSwitch) -> bool:
    """Whether ``switch`` surely freezes some of the first layers: `for layer in model.layers[:4]`."""
    loops = [loop for loop in switch.place.loops if isinstance(loop, ast.For)]
    if not switch.freezes:
        return False
    if switch.place.guards:
        return _is_below_some(run, switch, switch.place.guards, loops)
    taken = list(_slices_behind(switch.module))
    if taken and None not in taken:
        return all(map(_begins_with_first, taken))
    for depth, loop in enumerate(loops):
        match uncounted(loop.iter):
            case ast.Subscript(slice=ast.Slice(lower=None | ast.Constant(value=0), upper=ast.expr() as end, step=None)):
                return _is_some(run, switch, end)
            case ast.Call(func=ast.Name("range"), args=[end], keywords=[]):
                below = [*(inner.iter for inner in loops[depth + 1 :]), switch.node]
                return _is_some(run, switch, end) and any(_counts(part, loop.target) for part in below)
    return any(_is_from_first(run, switch, part) for part in subscripts_behind(switch.module))


def freezes_every_layer(switch: GradientSwitch) -> bool:
    """Whether ``switch`` surely freezes a whole list of layers, or what holds it, at once or in a loop through all."""
    if not switch.freezes or switch.place.guards or switch.is_partial:
        return False
    value = switch.module
    while isinstance(value, Attr | Element):
        if isinstance(value, Element) and (value.bounds is not None or value.index is not None or is_slice(value)):
            return False
        value = value.base if isinstance(value, Attr) else value.of
    return all(isinstance(loop, ast.For) and _goes_through_all(loop) for loop in switch.place.loops)


def _goes_through_all(loop: ast.For) -> bool:
    """Whether ``loop`` passes everything in an attribute, in a display, or that a method gives, to the end."""
    match loop.iter:
        case (
            ast.Attribute()
            | ast.Tuple()
            | ast.List()
            | ast.Call(func=ast.Attribute(attr="parameters" | "modules" | "children"), args=[])
        ):
            return not any(isinstance(part, ast.Break | ast.Continue | ast.Return) for part in ast.walk(loop))
    return False


def _slices_behind(value: Value) -> Iterator[slice | None]:
    """The slices that took ``value`` out of what it is a part of; None for one whose bounds are not known."""
    while isinstance(value, Attr | Element):
        if isinstance(value, Element) and (value.bounds is not None or (is_slice(value) and not _is_passed(value))):
            yield value.bounds
        value = value.base if isinstance(value, Attr) else value.of


def _is_passed(element: Element) -> bool:
    """Whether a loop over a slice passes ``element``: both are known by the slice that is written there."""
    return isinstance(element.of, Element) and element.of.node is element.node


def _begins_with_first(bounds: slice | None) -> bool:
    """Whether a slice certainly takes the first layers: `[:18]`, `[0:-2]`."""
    return bounds is not None and bounds.start in (None, 0) and bounds.step in (None, 1) and bool(bounds.stop)


def _is_from_first(run: History, switch: GradientSwitch, part: ast.Subscript) -> bool:
    """Whether ``part``, which took the layers out of the model before the loop, is `[:8]`."""
    match part.slice:
        case ast.Slice(lower=None | ast.Constant(value=0), upper=ast.expr() as end, step=None):
            # A name means what it means where the slice is taken.
            is_here = _is_here(switch, part) or isinstance(end, ast.Constant | ast.UnaryOp)
            return is_here and _is_some(run, switch, end)
    return False


def _is_below_some(run: History, switch: GradientSwitch, guards: Sequence[Guard], loops: list[ast.For]) -> bool:
    """Whether the numbers of the layers are below one that is not 0."""
    end = _end_of_numbers(guards, loops)
    match guards[0].value:
        case Test(operands=(_, Const(int(number)))) if end is not None:
            return number > 0  # As it is in this call: `if i < config.frozen`.
    return end is not None and _is_some(run, switch, end)


def _end_of_numbers(guards: Sequence[Guard], loops: list[ast.For]) -> ast.expr | None:
    """What the numbers of the layers are below: `if i < 8` in a loop over `enumerate(layers)`; else None."""
    counted = {
        loop.target.elts[0].id
        for loop in loops
        if isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "enumerate"
        if len(loop.iter.args) == 1 and isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name)
    }
    match [(guard.test, guard.taken) for guard in guards]:
        case [(ast.Compare(left=ast.Name(id=name), ops=[operator], comparators=[end]), taken)] if name in counted:
            return end if isinstance(operator, ast.Lt | ast.LtE if taken else ast.GtE | ast.Gt) else None
    return None


def is_of_last_layers(run: History, switch: GradientSwitch) -> bool:
    """Whether ``switch`` comes to the last of some layers alone: `layers[-1]`, `layers[-4:]`, `layers[10:]`."""
    here = (part for part in ast.walk(switch.node) if isinstance(part, ast.Subscript))
    parts = list(dict.fromkeys((*here, *subscripts_around(switch), *subscripts_behind(switch.module))))
    if len(parts) != 1:
        return False
    chosen = parts[0].slice
    if isinstance(chosen, ast.Slice):
        return chosen.step is None and chosen.lower is not None and _is_some(run, switch, chosen.lower)
    from_end = isinstance(chosen, ast.UnaryOp) and isinstance(chosen.op, ast.USub)
    return from_end and _is_some(run, switch, chosen)


def _counts(node: ast.AST, target: ast.expr) -> bool:
    """Whether ``node`` takes an element by the number in the variable ``target``: `layers[i]`."""
    return isinstance(target, ast.Name) and any(
        isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Name) and part.slice.id == target.id
        for part in ast.walk(node)
    )


def _is_some(run: History, at: _At, end: ast.expr) -> bool:
    """Whether ``end``, as it is meant ``at`` a place, is a number that is not 0: `4`, `-2`, `len(layers) - 2`."""
    match end:
        case ast.BinOp(left=whole, op=ast.Sub(), right=kept):
            return _is_count(run, at, whole) and _is_some(run, at, kept)
        case ast.BinOp(left=whole, op=ast.FloorDiv(), right=ast.Constant(value=int(parts))):
            return 1 <= parts <= _FEW and _is_count(run, at, whole)
        case ast.Constant(value=int(number)):
            return number != 0
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_some(run, at, operand)
        case ast.Name(id=name):
            match _written(run, at, name):
                case (ast.Constant(value=int(number)), _):
                    return number > 0
                case (ast.BinOp() | ast.UnaryOp() as computed, where) if _is_here(where, computed):
                    return _is_some(run, where, computed)
                case (ast.Name() | ast.Attribute() as other, where):
                    return _is_imported_number(other, where)
            return _is_imported_number(end, at)
        case ast.Attribute():
            return _is_imported_number(end, at)
    return False


def _is_imported_number(name: ast.expr, at: _At) -> bool:
    """Whether a name, or one of a module, means a number above 0 where another file defines it."""
    function = at.place.function
    held = meaning(name, function) if function is not None else UNKNOWN
    return isinstance(held, Const) and type(held.value) is int and held.value > 0


def _is_count(run: History, at: _At, number: ast.expr) -> bool:
    """Whether ``number`` is that of all the layers: `len(layers)`, `model.config.num_hidden_layers`."""
    match number:
        case ast.Call(func=ast.Name("len"), args=[_]) | ast.Attribute(attr="num_hidden_layers" | "n_layer"):
            return True
        case ast.Name(id=name):
            found = _written(run, at, name)
            return found is not None and not isinstance(found[0], ast.Name) and _is_count(run, found[1], found[0])
    return False


def _is_here(at: _At, part: ast.AST) -> bool:
    """Whether ``part`` stands in the function around ``at``: elsewhere its names mean something else."""
    function = at.place.function
    return function is None or is_inside(part, function.node)


def given(run: History, switch: GradientSwitch, name: str) -> ast.expr | None:
    """What a variable of the function around ``switch`` holds: what the call gives, a default, or the one value."""
    found = _written(run, switch, name)
    # A name that a caller gives means nothing here.
    return None if found is None or (isinstance(found[0], ast.Name) and found[1] is not switch) else found[0]


def _written(run: History, at: _At, name: str) -> tuple[ast.expr, _At] | None:
    """The expression that a variable holds ``at`` a place, and what stands where its names are meant."""
    tree, function = run.program.tree_with(at.node), at.place.function
    if function is None:
        return _here(bound_once((tree,), name), at)
    if name not in parameter_names(function.node):
        return _here(bound_once((function.node, tree), name), at)
    caller = at.place.stack[-1] if at.place.stack else None
    call = next((found for found in run.calls_of(function) if found.node is caller), None)
    if call is None or call.via or function.owner is not None or _spreads(call.node):
        return None
    held = call.written_arguments(positional_names(function.node)).get(name)
    where: _At = at if held is None else call
    held = defaults(function.node).get(name) if held is None else held
    if not isinstance(held, ast.Name):
        return _here(held, where)
    return _here(bound_once((run.program.tree_with(where.node),), held.id) or held, where)


def _here(expression: ast.expr | None, at: _At) -> tuple[ast.expr, _At] | None:
    return None if expression is None else (expression, at)


def _spreads(call: ast.Call) -> bool:
    """Whether `*rest` or `**rest` in a call may give more than is written there."""
    starred = any(isinstance(given, ast.Starred) for given in call.args)
    return starred or any(keyword.arg is None for keyword in call.keywords)
