"""What leaves a model in train mode for a call of it that no switch of the same iteration comes before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors, is_plain, is_torch_module
from ...facts.values import Instance, options
from ..events import TrainSwitch
from ..flow.iterations import is_last_iteration
from ..flow.lifetimes import is_built_before, outermost, surely_done
from ..flow.loops_around import iterations_around
from ..flow.uses import objects_in
from .lightning_training import lightning_trains

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...facts.values import Call, Class, Function, Value
    from ..events import ModeChange
    from ..history import History

#: Modules of modules are looked into this deep.
_DEPTH = 3


def held_models(value: Value, depth: int = _DEPTH) -> Iterator[Value]:
    """What a module of the program holds, and with it switches between the modes."""
    for inner in objects_in(value):
        if not isinstance(inner, Instance) or not is_torch_module(inner.cls) or _switches_itself(inner.cls):
            continue
        fields = [held for owner in (inner.cls, *ancestors(inner.cls)) for held in owner.fields.values()]
        for held in (option for field in fields for option in options(field)):
            yield held
            if depth:
                yield from held_models(held, depth - 1)


def _switches_itself(cls: Class) -> bool:
    return any(name in owner.body for owner in (cls, *ancestors(cls)) for name in ("train", "eval"))


def left_in_train(run: History, switches: Sequence[ModeChange], used: Call, made: Call | None) -> TrainSwitch | None:
    """The last switch to train mode that still holds when control comes to ``used``; None when that is not certain.

    Args:
        run: The run.
        switches: All that may change the mode of the model, in program order; nothing before ``used`` in its own walk.
        used: A call of the model.
        made: The call that built or loaded the model.
    """
    return _of_last_iteration(run, switches, used, made) or _of_constructor(run, switches, used)


def _of_last_iteration(
    run: History, switches: Sequence[ModeChange], used: Call, made: Call | None
) -> TrainSwitch | None:
    """The switch behind ``used`` in a loop around it, which holds in the next iteration."""
    for iteration in iterations_around(run, used):
        if made is not None and iteration.loop in made.place.loops:
            continue  # Every iteration has a model of its own.
        here = [it for it in switches if iteration.first <= it.order <= iteration.last]
        last = here[-1] if here and all(map(_is_on, here)) else None
        if isinstance(last, TrainSwitch) and not is_last_iteration(iteration.loop, last.node):
            return last
    return None


def _of_constructor(run: History, switches: Sequence[ModeChange], used: Call) -> TrainSwitch | None:
    """The switch of the constructor of the object that ``used`` is in, which every other method takes up again."""
    built = [it for it in switches if is_built_before(run, it.call, used)]
    last = built[-1] if built else None
    function = outermost(run, used)
    if not isinstance(last, TrainSwitch) or not _is_on(last) or not surely_done(run, last.call, used):
        return None
    if function is None or not _keeps_modes(run, function):
        return None  # Who has a module switches it from outside.
    # Each way through the program ends in a mode: that of its last switch.
    left = {it.place.walk: it for it in switches if it not in built}
    return last if all(map(_is_on, left.values())) else None


def _keeps_modes(run: History, function: Function) -> bool:
    """Whether nobody outside switches the mode of what its object has: a plain object, or a module in Lightning."""
    owner = function.owner
    if owner is None or is_plain(owner):
        return owner is not None
    return function.name == "training_step" and lightning_trains(run, owner)


def _is_on(switch: ModeChange) -> bool:
    return isinstance(switch, TrainSwitch) and switch.on is True
