"""Models of transformers that are built: what a configuration belongs to, and which Trainers switch them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.values import Attr, Instance, Result, Value, options, same
from ..events import TrainerBuild
from ..events.extract import ENABLES, args_of
from ..types import bases, is_hf_model, unwrapped
from .trainer import is_enabled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..run import Run


def finished_model(obj: Value, others: Iterable[Value] = ()) -> Value | None:
    """The finished model of transformers that ``obj`` is, or is the configuration of.

    Args:
        obj: What a flag is set on.
        others: What the same expression may be instead. A function that is not shown, and that is given one of their
            models, gives back that model: `model = load_weights(model, path)`.
    """
    if not (isinstance(obj, Attr) and obj.name == "config"):
        return _model(obj)
    whole = _model(obj.base)
    while whole is None and isinstance(obj, Attr):  # The configuration of a part of the model.
        obj = obj.base
        whole = _model(obj)
    return whole or _given_back(obj, others)


def _model(value: Value) -> Value | None:
    return value if is_hf_model(value) and not isinstance(value, Instance) else None


def _given_back(made: Value, others: Iterable[Value]) -> Value | None:
    if not isinstance(made, Result):
        return None
    models = [model for other in others if other is not made and (model := finished_model(other)) is not None]
    given = [option for argument in (*made.call.args, *made.call.kwargs.values()) for option in options(argument)]
    held = [value for it in given if isinstance(it, Instance) for value in it.cls.fields.values()]
    passed = [option for value in (*given, *held) for option in options(value)]
    return next((model for model in models if any(same(model, it) for it in passed)), None)


def trainer_may_enable(run: Run) -> bool:
    """Whether some Trainer turns checkpointing on, or may."""
    return any(not _has_no_switch(trainer.model) and _asks(run, trainer) for trainer in run.of(TrainerBuild))


def _asks(run: Run, trainer: TrainerBuild) -> bool:
    args = args_of(trainer.args)
    return args is None or is_enabled(run, args, trainer.args) is not False


def _has_no_switch(model: Value) -> bool:
    """Whether ``model`` is a plain module of torch around others: a Trainer that asks it to checkpoint raises."""
    for option in options(unwrapped(model)):
        if not isinstance(option, Instance):
            return False
        written = {name for owner in (option.cls, *ancestors(option.cls)) for name in (*owner.body, *owner.fields)}
        plain = set(bases(option.cls)) == {"torch.nn.Module"}
        if not plain or written & {*ENABLES, "__getattr__"}:
            return False
    return True
