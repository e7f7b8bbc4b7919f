"""Which modules Lightning trains, and leaves in the mode that they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import method_of
from ...facts.values import Absent, Attr, Class, Const, Function, Instance, Method, Ref, Result, Seq, options
from ..events import LightningFit
from ..names import canonical
from ..types import bases, class_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Value
    from ..history import History

#: Distributions of Lightning, and the releases whose `fit` no longer calls `train()`.
_LIBRARIES = ("lightning", "pytorch-lightning")
_KEEPS_MODES = ">=2.2"
_MODULES = frozenset(("lightning.LightningModule", "pytorch_lightning.LightningModule"))
#: Callbacks that switch modules to train mode.
_SWITCH = ("Finetuning",)

#: Libraries that leave the modes of what they get alone.
_LEAVE_MODE = ("lightning.", "pytorch_lightning.", "torch.", "builtins.", "super.")


def lightning_trains(run: History, cls: Class) -> bool:
    """Whether the program lets Lightning train a module of the class ``cls``, and nothing switches modes unseen."""
    if not set(bases(cls)) or not set(bases(cls)) <= _MODULES or one_step(cls) is None:
        return False
    if not all(run.versions.may_be(library, _KEEPS_MODES) for library in _LIBRARIES):
        return False
    fits = [event for event in run.of(LightningFit) if any(_is_of(module, cls) for module in event.modules)]
    if not fits or not all(_is_plain(build) for event in fits for build in event.builds):
        return False
    written = any(write.field == "training" for write in run.writes)
    return not written and not any(_may_switch(call, cls) for call in run.program.calls)


def is_lightning_step(run: History, function: Function) -> bool:
    """Whether ``function`` is the training step of a LightningModule, whose loss Lightning trains with by itself."""
    owner = function.owner
    if function.name != "training_step" or owner is None or not set(bases(owner)) or not set(bases(owner)) <= _MODULES:
        return False
    return not any(write.field == "automatic_optimization" for write in run.writes)


def one_step(cls: Class) -> Function | None:
    """The training step of a LightningModule."""
    return method_of(cls, "training_step")


def is_in_training_step(call: Call) -> bool:
    """Whether ``call`` stands in the training step of a LightningModule, whose loss Lightning goes back from."""
    function = call.place.function
    owner = function.owner if function is not None and function.name == "training_step" else None
    return owner is not None and not _MODULES.isdisjoint(bases(owner))


def _is_of(module: Value, cls: Class) -> bool:
    return all(isinstance(option, Instance) and option.cls is cls for option in options(module))


def _may_switch(call: Call, cls: Class) -> bool:
    """Whether code that is not shown gets a module of the class ``cls``, and may switch its mode."""
    if not any(_is_of(value, cls) for value in (*call.args, *call.kwargs.values())):
        return False
    match call.func:
        case Function() | Method() | Class():
            return False
        case Ref(name):
            return not canonical(name).startswith(_LEAVE_MODE)
        case Attr(base=base):
            return not all(name.startswith(_LEAVE_MODE) for name in class_names(base)) or not class_names(base)
    return True


def _is_plain(build: Call) -> bool:
    """Whether the program shows all callbacks of a Trainer, and none of them switches modes."""
    if build.open_kwargs:
        return False
    return all(_leaves_modes(option) for option in _callbacks(build.keyword("callbacks")))


def _callbacks(value: Value) -> Iterator[Value]:
    for option in options(value):
        if isinstance(option, Seq) and not option.open:
            yield from (part for item in option.items for part in options(item))
        else:
            yield option


def _leaves_modes(callback: Value) -> bool:
    match callback:
        case Absent() | Const(None):
            return True
        case Result(call):
            name = canonical(call.name)
            return name.startswith(("lightning.", "pytorch_lightning.")) and not name.endswith(_SWITCH)
    return False
