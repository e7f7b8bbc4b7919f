"""Frozen models of transformers whose output is trained on: a backward pass comes back to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Instance, one
from ..events import LightningFit
from ..known_models.main_inputs import is_text_class
from ..known_models.model_families import family_of
from ..state.lightning_training import is_lightning_step
from ..tensors.gradient_free import is_gradient_free
from ..types import class_names, unwrapped, whole_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Result, Value
    from ..run import Run

#: Arguments of which the first is the main input of a model, and those that only models of pictures and sound take.
_TOKENS = "input_ids"
#: Modules in modules around a frozen one.
_HOLDERS = 3
_OTHERS = ("pixel_values", "input_features", "input_values")


def is_trained_behind(run: Run, model: Result) -> bool:
    """Whether a loss certainly gets what ``model``, which takes token ids, gives."""
    forwards = [
        call
        for call in run.uses.calls.of(model)
        if _is(call.func, model) and not is_gradient_free(call) and _takes_token_ids(model, call)
    ]
    trained = (outer for call in forwards for outer in (call, *_calls_around(run, model, call)))
    return any(any(run.losses.fed_by(it)) or _is_lightning_loss(run, it) for it in trained)


def _is_lightning_loss(run: Run, call: Call) -> bool:
    """Whether a training step gives, with its gradients, what ``call`` gives to Lightning, which goes back from it."""
    function = call.place.function
    is_step = function is not None and is_lightning_step(run, function) and any(run.of(LightningFit))
    return is_step and run.losses.is_returned(call)


def _calls_around(run: Run, model: Value, forward: Call, depth: int = _HOLDERS) -> Iterator[Call]:
    """The calls of modules that hold ``model`` and give, with its gradients, what ``forward`` inside of them gives."""
    if not all(map(run.losses.is_returned, run.path_to(forward) or (forward,))):
        return
    for held in run.uses.writes.of(model):
        if isinstance(held.obj, Instance) and any(it.node is forward.node for it in run.bodies.of(held.obj).calls):
            for call in run.uses.calls.of(held.obj):
                if not is_gradient_free(call):
                    yield call
                    yield from _calls_around(run, held.obj, call, depth - 1) if depth else ()


def _is(value: Value, model: Value) -> bool:
    return one(unwrapped(whole_model(value)), model)


def _takes_token_ids(model: Result, forward: Call) -> bool:
    if any(name in forward.kwargs for name in _OTHERS):
        return False
    classes = [name.rpartition(".")[2] for name in class_names(model)]
    return _TOKENS in forward.kwargs or bool(family_of(model)) or any(map(is_text_class, classes))
