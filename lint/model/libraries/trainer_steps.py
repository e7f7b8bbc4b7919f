"""What a Trainer's own class does in its steps: the calls there that run the model it trains, checkpointed or not."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors, method_of
from ...facts.parameters import positional_names
from ...facts.values import Attr, Class, Instance, Param, Super, options
from ..events import ModeSwitch, TrainerBuild
from ..events.extract import args_of
from ..types import unwrapped
from .enabled import reentrant_settings
from .trainer import is_enabled, trainer_reentrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function, Value
    from ..events import Event
    from ..run import Run

#: The methods that a Trainer calls with its model, to train it.
_STEPS = ("compute_loss", "training_step")
#: The attributes under which a Trainer keeps its model.
_MODELS = ("model", "model_wrapped")


def reentrant_trainers(run: Run, call: Call) -> Event | None:
    """What makes the model run reentrant that ``call``, in a Trainer's own class, runs; None where one of them may not.

    The model is what the Trainer gives its steps, or keeps; `super().compute_loss(model, inputs)` runs it too.
    """
    owner = _trainer_of(_model_of(call)) if _is_in_training(run, call) else None
    built = [it for it in run.of(TrainerBuild) if owner is not None and _has(it, owner)]
    causes = [_cause(run, trainer) for trainer in built]
    return causes[0] if causes and None not in causes else None


def _is_in_training(run: Run, call: Call) -> bool:
    """Whether ``call`` stands in a step that trains, and the function around it has not switched to eval mode."""
    way = run.path_to(call) or [call]
    if not any(it.place.function is not None and it.place.function.name in _STEPS for it in way):
        return False
    switched = (it for it in run.of(ModeSwitch) if it.on is False and it.order < call.order)
    return not any(it.place.function is call.place.function for it in switched)


def _model_of(call: Call) -> Value:
    """The model that ``call`` runs, if it runs one."""
    match call.func:
        case Attr(base=Super() | Instance(), name=name) if name in _STEPS:  # the library's own
            return unwrapped(call.argument(0, "model"))
    return unwrapped(call.func)


def _trainer_of(model: Value) -> Class | Function | None:
    """The class of objects that keep ``model``, or the step that is given it; None where it is no such model.

    The class may be one that a Trainer's is mixed with.
    """
    match model:
        case Param(name) if model.function.name in _STEPS and positional_names(model.function.node)[1:2] == [name]:
            return model.function
        case Attr(base=Instance(cls), name=name) if name in _MODELS:
            return cls
    return None


def _has(trainer: TrainerBuild, owner: Class | Function) -> bool:
    """Whether ``trainer`` is of the class ``owner``, or has the method ``owner``."""
    cls = trainer.call.func
    if not isinstance(cls, Class):
        return False
    if isinstance(owner, Class):
        return owner in (cls, *ancestors(cls))
    return method_of(cls, owner.name) is owner


def _cause(run: Run, trainer: TrainerBuild) -> Event | None:
    return next(chain(_arguments(run, trainer), reentrant_settings(run, trainer.model)), None)


def _arguments(run: Run, trainer: TrainerBuild) -> Iterator[Event]:
    """The arguments of ``trainer`` where all that are possible select the reentrant variant."""
    values = options(trainer.args)
    found = [(args, value) for value in values if (args := args_of(value)) is not None]
    if len(found) == len(values) and all(is_enabled(run, *it) and trainer_reentrant(run, it[0]) for it in found):
        yield from (args for args, _ in found)
