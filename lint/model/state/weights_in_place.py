"""Weights that the program itself changes: clipping, moving averages, copies of another model's."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes, is_inside
from ...facts.values import UNKNOWN, Attr, Element, Result, Value, one
from ..flow.frames import stands_between
from ..frozen.freezing import may_be_frozen
from ..tensors.gradient_free import is_always_gradient_free
from ..types import unwrapped
from .put_back_later import may_be_put_back_later
from .run_again import weights_run_again
from .weights import are_held_alone, is_built_by_itself, is_certainly_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call
    from ...facts.walk import Write
    from ..run import Run
    from .weights import Built

#: Methods that change the values of a tensor.
_IN_PLACE = (
    *("add_", "sub_", "mul_", "div_", "lerp_", "addcmul_", "addcdiv_", "copy_", "clamp_", "clamp_min_", "clamp_max_"),
    *("clip_", "fill_", "zero_", "normal_", "uniform_", "neg_", "sign_", "masked_fill_", "renorm_"),
)
#: What a condition may ask a parameter for that leaves those of every layer in.
_ASKED = frozenset(("requires_grad", "grad"))


class _Change(NamedTuple):
    """Something that changes values past autograd."""

    moment: Call | Write
    tensor: Value
    #: The model whose parameters are changed; None where that is not known.
    owner: Value | None


def weights_set(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call | Write]:
    """What changes the parameters of ``model`` by hand between ``forward`` and ``backward``.

    A second change may take the first one back, and so may one of tensors that are not known.
    """
    changes = changes_by_hand(run, forward, backward)
    if not changes or may_be_put_back_later(run, backward):
        return
    again = weights_run_again(run, model)
    own = [it for it in changes if it.owner is None or one(unwrapped(it.owner), model)]
    several = len({(_block_of(it.moment, forward), it.moment.place.stack) for it in own}) > 1
    # Of two models that one expression builds it is not known which one this is.
    is_told = all(is_certainly_one(run, unwrapped(it.owner), model) for it in own if it.owner is not None)
    is_told = is_told and is_built_by_itself(model, forward)
    trains = any(not may_be_frozen(run, weights) for weights in again.values())
    sure = (it.moment for it in own if it.owner is not None or _is_of_layer(run, it.tensor, again))
    found = next(sure, None)
    if found is not None and is_told and trains and not several and not _leaves_some_out(found):
        yield found


def changes_by_hand(run: Run, forward: Call, backward: Call) -> list[_Change]:
    """What changes, between the two, the values of tensors past autograd, or may do so."""
    return [it for it in _changes(run, forward, backward) if stands_between(run, it.moment, forward, backward)]


def _changes(run: Run, forward: Call, backward: Call) -> Iterator[_Change]:
    """Autograd lets nothing else than these change the values of a parameter."""
    for call in run.method_calls_between(forward, backward, *_IN_PLACE):
        is_data = isinstance(call.receiver, Attr) and call.receiver.name == "data"
        is_gradient = isinstance(call.receiver, Attr) and call.receiver.name == "grad"
        if is_data or (is_always_gradient_free(call) and not is_gradient):
            yield _Change(call, call.receiver, _owner(call.receiver))
    for write in run.writes:
        if forward.order < write.order < backward.order and write.field == "data" and not write.is_item:
            yield _Change(write, write.obj, _owner(write.obj))
    for call in run.calls_to("torch.nn.utils.vector_to_parameters"):
        if forward.order < call.order < backward.order:
            given = call.argument(1, "parameters")
            yield _Change(call, given, _listed_of(given))
    for call in run.method_calls_between(forward, backward, "load_state_dict"):
        yield _Change(call, UNKNOWN, None)


def _owner(tensor: Value) -> Value | None:
    """The model that has ``tensor`` among all its parameters, one after the other."""
    match tensor:
        case Attr(base=inner, name="data"):
            return _owner(inner)
        case Element(of=Element(of=Result(call)), index=1) if call.method == "named_parameters":
            return call.receiver
        case Element(of=listed):
            return _listed_of(listed)
    return None


def _listed_of(listed: Value) -> Value | None:
    """The model whose parameters ``listed`` is."""
    return listed.call.receiver if isinstance(listed, Result) and listed.call.method == "parameters" else None


def _is_of_layer(run: Run, tensor: Value, again: dict[Built, Result]) -> bool:
    """Whether ``tensor`` is a parameter of one of the layers that run ``again``: `net.layers[0].weight`."""
    match tensor:
        case Attr(base=inner, name="data"):
            return _is_of_layer(run, inner, again)
        case Attr(base=Result() as layer, name="weight" | "bias"):
            return any(one(layer, part) for part in again.values()) and are_held_alone(run, layer, again)
    return False


def _block_of(moment: Call | Write, forward: Call) -> ast.AST:
    """The loop over parameters that ``moment`` stands in, or itself where there is none."""
    inner = [loop for loop in moment.place.loops if loop not in forward.place.loops]
    return inner[0] if inner else moment.node


def _leaves_some_out(moment: Call | Write) -> bool:
    """Whether a condition in the loop over parameters may choose some of them: any but `if p.requires_grad`."""
    loop = moment.place.loops[-1] if moment.place.loops else None
    inside = (guard.test for guard in moment.place.guards if loop is not None and is_inside(guard.test, loop))
    asked = [{part.attr for part in all_nodes(test) if isinstance(part, ast.Attribute)} for test in inside]
    return any(not attributes or not attributes <= _ASKED for attributes in asked)
