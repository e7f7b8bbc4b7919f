"""Regions that no gradient comes to: reentrant ones behind data, frozen ones behind data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.containers import container_kind, held_by
from ...facts.values import Const, Dict, Instance, Param, Result, Seq, equals, options, same
from ..calls.call_targets import call_targets
from ..conditions.first_iteration import depends_on_iteration, runs_in_first_iteration
from ..conditions.guards import own_loops
from ..events import (
    Backward,
    Checkpoint,
    CheckpointSequential,
    DeepSpeedCheckpoint,
    GradientSwitch,
    WrapperCheckpointing,
)
from ..frozen.freezing import is_frozen
from ..names import canonical
from ..types import bases
from ..wrapping.wrapped import wrapped_classes
from .gradient_free import is_gradient_free
from .gradless import hands_on_gradless, is_gradless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Place, Value
    from ..events import Checkpointing
    from ..history import History


def loses_gradients(run: History, event: Checkpointing) -> bool:
    """Whether no input of the reentrant region ``event``, or of its first iteration in a loop, needs a gradient."""
    if not event.reentrant:
        return False
    match event:
        case Checkpoint(inputs=inputs, function_kwargs={}):
            return _has_no_gradient(run, event.call, inputs, looked_up=_looks_input_up(run, event))
        case DeepSpeedCheckpoint(inputs=inputs):
            return _has_no_gradient(run, event.call, inputs)
        case CheckpointSequential():
            return equals(event.segments, 1) is not True and _has_no_gradient(run, event.call, [event.input])
        case WrapperCheckpointing():
            calls = list(_calls_of_wrapped(run, event))
            given = ((call, [*call.args, *call.kwargs.values()]) for call in calls)
            return bool(calls) and all(_has_no_gradient(run, call, values) for call, values in given)
    return False


def needs_no_gradients(run: History, event: Checkpointing) -> bool:
    """Whether the region ``event`` is frozen, and gets nothing that needs a gradient: no backward pass comes to it."""
    if not isinstance(event, Checkpoint) or event.function_kwargs or event.call.open_args:
        return False
    if any(own_loops(event.place)) or not all(_is_all_frozen(run, module) for module in options(event.function)):
        return False  # In the next iteration of a loop, something that trains may be in front of it.
    return bool(event.inputs) and all(is_gradless(run, value) for value in event.inputs)


def _is_all_frozen(run: History, module: Value) -> bool:
    if not isinstance(module, Instance) or not is_frozen(run, module):
        return False
    return not any(same(switch.module, module) and switch.is_partial for switch in run.of(GradientSwitch))


def _has_no_gradient(run: History, call: Call, inputs: list[Value], *, looked_up: bool = False) -> bool:
    if is_gradient_free(call) or not _first_iteration_trains(run, call.place):
        return False
    if call.open_args and not hands_on_gradless(run, call):
        return False
    return looked_up or all(_is_unseen(value) or is_gradless(run, value) for value in inputs)


def _looks_input_up(run: History, event: Checkpoint) -> bool:
    """Whether the only input goes into an embedding: numbers of tokens, which cannot need a gradient."""
    if len(event.inputs) != 1:
        return False
    held = held_by(event.function) if container_kind(event.function) == "Sequential" else []
    if held and _is_embedding(held[0]):
        return True
    filled = [(part.function.node, name) for part in call_targets(event.function) for name in part.parameters()[:1]]
    return any(
        _is_embedding(call.func) and isinstance(given, Param) and (given.function.node, given.name) in filled
        for call in run.region(event).calls
        for given in call.args[:1]
    )


def _is_embedding(module: Value) -> bool:
    return isinstance(module, Result) and canonical(module.call.name) in ("torch.nn.Embedding", "torch.nn.EmbeddingBag")


def _first_iteration_trains(run: History, place: Place) -> bool:
    """Whether the first of the blocks comes to ``place``, and trains where the later ones may not come there."""
    if not runs_in_first_iteration(place):
        return False
    return not (depends_on_iteration(place) and any(switch.is_partial for switch in run.uses.freezes))


def _is_unseen(value: Value) -> bool:
    """Whether ``value`` is no tensor itself, so that torch does not ask whether it needs a gradient."""
    return all(isinstance(option, Dict | Seq | Const) or _is_module(option) for option in options(value))


def _is_module(value: Value) -> bool:
    return isinstance(value, Instance) and "torch.nn.Module" in bases(value.cls)


def _calls_of_wrapped(run: History, event: WrapperCheckpointing) -> Iterator[Call]:
    """The calls, in a program that trains, of the modules of the file that ``event`` wraps."""
    if not any(run.of(Backward)):
        return
    wrapped = wrapped_classes(run, event)
    for call in run.program.calls:
        called = [option.cls for option in options(call.func) if isinstance(option, Instance)]
        if any(cls in wrapped for cls in called) and not is_gradient_free(call):
            yield call
