"""What programs that build the model themselves are asked for by their settings, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Const, equals, is_absent, truth
from ..model.libraries.trainer import is_enabled, object_of, trainer_reentrant
from .state import State
from .wording import WRAPPED

if TYPE_CHECKING:
    from ..facts.values import Call, Value
    from ..model.events import SwiftArgs
    from ..model.run import Run


def asked_of_torchtune(call: Call) -> str:
    """What the two switches come to (torchtune 0.6.1, `recipes/full_finetune_distributed.py`)."""
    switch, mode = call.keyword("enable_activation_checkpointing"), call.keyword("ac_mode")
    on = False if is_absent(switch) else truth(switch)
    if is_absent(mode) or equals(mode, None):
        return str(WRAPPED if on else State(on))
    if on is not False:
        return "two ways to checkpoint, of which its distributed recipes take neither" if on else str(State(None))
    every = call.keyword("ac_option")
    if equals(mode, "selective") and isinstance(every, Const):
        return f"every layer whose number is divisible by {every.value} is wrapped in torch's checkpoint, non-reentrant"
    return str(WRAPPED if equals(mode, "full") else State(False if equals(mode, "none") else None))


def asked_of_swift(run: Run, args: SwiftArgs) -> str:
    """What `swift sft` does (ms-swift 3.6 to 4.6, `trainers/mixin.py`, `_prepare_gradient_checkpointing`)."""
    if args.wraps_layers:
        return WRAPPED
    on = is_enabled(run, args, object_of(args))
    reentrant = trainer_reentrant(run, args)
    chooses = args.chooses_variant and not args.is_before_3 and run.versions.may_be("ms-swift", ">=3.6")
    if on and reentrant is None and chooses:
        said = "on, non-reentrant under DDP and reentrant otherwise"
    else:
        said = str(State(on, reentrant if on else None))
    vision = args.call.keyword("vit_gradient_checkpointing")
    differs = is_absent(vision) is False and truth(vision) not in (None, on)
    return f"{said}; in the vision tower {'on' if truth(vision) else 'off'}" if differs else said


def asked_of_megatron(call: Call) -> str:
    """What Megatron recomputes (megatron-core 0.15, `transformer_block.py`); ms-swift's default is `selective`."""
    granularity = call.keyword("recompute_granularity")
    if equals(granularity, "none"):
        return str(State(False))
    if equals(granularity, "full"):
        method, layers = call.keyword("recompute_method"), _text(call.keyword("recompute_num_layers"))
        if equals(method, "uniform"):
            return f"all layers are recomputed, in groups of {layers}"
        if equals(method, "block"):
            return f"the first {layers} layers of each pipeline stage are recomputed"
    if is_absent(granularity) is True or equals(granularity, "selective"):
        by_default = is_absent(call.keyword("recompute_modules")) is True
        named = "attention's core" if by_default else "what `recompute_modules` names"
        return f"a part of each layer is recomputed: {named}"
    return str(State(None))


def _text(value: Value) -> str:
    return str(value.value) if isinstance(value, Const) else "?"
