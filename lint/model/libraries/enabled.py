"""Whether a model is checkpointed when it runs, and which setting makes it run the reentrant variant."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Instance, Value, options, same
from ..conditions.guards import own_guards, tests_training
from ..events import (
    ApplyCheckpointing,
    CheckpointWrap,
    Event,
    HfDisable,
    HfEnable,
    KbitPrepare,
    TorchCheckpoint,
    TrainerBuild,
)
from ..events.extract import args_of
from ..flow.lifetimes import surely_done
from ..types import is_hf_model, unwrapped, whole_model
from ..variant import hf_kwargs_reentrant
from .quantized import is_quantized
from .trainer import enable_reentrant, is_enabled, overriding_trainer, trainer_reentrant, trainers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call
    from ..events import TrainerArgs
    from ..run import Run


class Enabling(NamedTuple):
    """A place that certainly switches checkpointing on for a model of transformers."""

    event: HfEnable | TrainerArgs
    model: Value
    #: None where it is open.
    reentrant: bool | None


def enablings(run: Run) -> Iterator[Enabling]:
    """The calls that switch a model's checkpointing on, and the arguments of Trainers that do so when they train.

    A Trainer of a model that is switched on by a call too is left out.
    """
    yield from (Enabling(enable, enable.model, enable_reentrant(run, enable)) for enable in run.of(HfEnable))
    for trainer in run.of(TrainerBuild):
        model = unwrapped(trainer.model)
        values = options(trainer.args)
        found = [args for value in values if (args := args_of(value)) is not None and is_enabled(run, args, value)]
        called = any(_is(whole_model(enable.model), model) for enable in run.uses.enables.of(model))
        if found and len(found) == len(values) and is_hf_model(model) and not called:
            yield from (Enabling(args, model, trainer_reentrant(run, args)) for args in found)


def reentrant_settings(run: Run, model: Value) -> Iterator[Event]:
    """What certainly makes (parts of) ``model`` run reentrant."""
    for enable in run.uses.enables.of(unwrapped(model)):
        is_reentrant = _is(whole_model(enable.model), model) and enable_reentrant(run, enable)
        if is_reentrant and overriding_trainer(run, enable) is None:
            yield enable
    for _, args, value in trainers_of(run, model):
        if is_enabled(run, args, value) and trainer_reentrant(run, args):
            yield args
    for prepare in run.of(KbitPrepare):
        decides = _is(prepare.model, model) and not any(run.of(TrainerBuild)) and not any(run.of(HfEnable))
        if prepare.is_on and decides and hf_kwargs_reentrant(prepare.kwargs, default=True):
            yield prepare
    for apply in run.of(ApplyCheckpointing):
        if _is(apply.model, model) and apply.reentrant:
            yield apply
    yield from (event for event in checkpoints_in(run, model) if event.reentrant)


def checkpoints_in(run: Run, model: Value) -> Iterator[TorchCheckpoint]:
    """The checkpoint calls that the forward pass of ``model``, a module of the file, comes to."""
    model = unwrapped(model)
    if isinstance(model, Instance):
        inside = {id(call.node) for call in run.bodies.of(model).calls}
        yield from (event for event in run.used(TorchCheckpoint) if id(event.node) in inside)


def sure_checkpoints_in(run: Run, model: Value) -> Iterator[TorchCheckpoint]:
    """Those of :func:`checkpoints_in` that every forward pass in train mode comes to, by what the object was given."""
    reached = run.bodies.of(unwrapped(model)).conditions
    for event in checkpoints_in(run, model):
        if all(map(tests_training, reached[event.node, ""])):
            yield event


def wrappers_in(run: Run, model: Value) -> Iterator[CheckpointWrap]:
    """The modules wrapped by `checkpoint_wrapper` that the forward pass of ``model`` comes to whenever it trains."""
    model = unwrapped(model)
    events = [*run.used(CheckpointWrap)] if isinstance(model, Instance) else []
    reached = run.bodies.of(model).conditions if events else {}
    nodes = {node for (node, _), under in reached.items() if all(map(tests_training, under))}
    yield from (event for event in events if event.node in nodes and not any(own_guards(event.place)))


def is_checkpointed(run: Run, model: Value, forward: Call) -> bool:
    """Whether a forward pass certainly checkpoints the model or parts of it.

    Args:
        run: The run.
        model: The model, in train mode.
        forward: The call of it.
    """
    if any(run.of(HfDisable)):
        return False
    enabled = [it.call for it in run.uses.enables.of(unwrapped(model)) if _is(whole_model(it.model), model)]
    enabled += [event.call for event in run.of(ApplyCheckpointing) if _is(event.model, model)]
    enabled += [event.call for event in run.of(KbitPrepare) if _is(event.model, model) and _switches_on(run, event)]
    if any(surely_done(run, call, forward) for call in enabled) or _holds_enabled_model(run, model, forward):
        return True
    if any(wrappers_in(run, model)):
        return True
    return any(sure_checkpoints_in(run, model))


def _switches_on(run: Run, prepare: KbitPrepare) -> bool:
    """Whether the preparation certainly switches checkpointing on: peft does so for a quantized model only."""
    return prepare.is_on and is_quantized(run, prepare.model, prepare.place) is True


def _holds_enabled_model(run: Run, model: Value, forward: Call) -> bool:
    """Whether the forward pass of ``model``, a module of the file, calls a model whose checkpointing is on."""
    if not isinstance(model, Instance):
        return False
    enabled = [whole_model(event.model) for event in run.of(HfEnable) if surely_done(run, event.call, forward)]
    if not enabled:
        return False
    region = run.bodies.of(model)
    called = (call for call in region.calls if all(map(tests_training, region.conditions_of(call))))
    return any(_is(whole_model(call.func), held) for call in called for held in enabled)


def _is(value: Value, model: Value) -> bool:
    return any(same(unwrapped(option), unwrapped(model)) for option in options(value))
