"""Calls of transformers' `_set_gradient_checkpointing` with the arguments that it took before 4.35."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Attr, Const, Partial, equals, is_absent, options
from ..events import HfEnable, TrainerArgs
from ..flow.mentions import mentions
from ..types import class_names, is_hf_model, unwrapped
from .trainer import is_enabled, object_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ...facts.values import Arguments, Value
    from ..run import Run

_SWITCH = "_set_gradient_checkpointing"
#: Models that kept a method of the old kind (transformers 5.23), or take whatever they get.
_KEPT = ("GroundingDino", "MMGroundingDino", "FastSpeech2Conformer", "OmDetTurbo", "PatchTST", "TimmWrapper")


class OldSwitch(NamedTuple):
    """One call, and whether it raises itself; where it does not, the first forward pass in train mode does."""

    node: ast.AST
    raises: bool


def old_switches(run: Run) -> list[OldSwitch]:
    """The calls `model._set_gradient_checkpointing(module, True)` and `(..., value=True)`, also through `apply`."""
    found = list(_old_switches(run))
    # The program may ask which one it is.
    return [] if found and mentions(run.program, "signature") else found


def _old_switches(run: Run) -> Iterator[OldSwitch]:
    for call in run.method_calls(_SWITCH):
        raises = _has_old_keyword(call)
        if _is_new(call.receiver) and (not call.place.tries if raises else _stores_flag(call) and not _is_mended(run)):
            yield OldSwitch(call.node, raises)
    for apply in run.method_calls("apply"):
        for given in apply.args[:1] if not apply.place.tries else ():
            match given:
                case Partial(func=Attr(base=model, name=name)) if name == _SWITCH and _is_new(model):
                    if _has_old_keyword(given.call):
                        yield OldSwitch(given.call.node, raises=True)


def _is_new(model: Value) -> bool:
    names = (name.split(".")[1] for option in options(model) for name in class_names(unwrapped(option)) if "." in name)
    return is_hf_model(model) and not any(name.startswith(_KEPT) for name in names)


def _has_old_keyword(given: Arguments) -> bool:
    return is_absent(given.keyword("value")) is False


def _stores_flag(given: Arguments) -> bool:
    """Whether the function that checkpoints is certainly `True` or `False`, and the switch not off."""
    if equals(given.argument(0, "enable"), False) is True:
        return False
    function = given.argument(1, "gradient_checkpointing_func")
    return all(isinstance(option, Const) and isinstance(option.value, bool) for option in options(function))


def _is_mended(run: Run) -> bool:
    """Whether something enables checkpointing in the way that puts a function there."""
    return any(run.of(HfEnable)) or any(is_enabled(run, args, object_of(args)) for args in run.of(TrainerArgs))
