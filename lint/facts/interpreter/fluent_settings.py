"""Methods of transformers' `TrainingArguments` that set some of them: `args = args.set_training(batch_size=8)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import Absent, Const, may_be_none
from .bindings import write

if TYPE_CHECKING:
    from ..values import Call, Result, Value
    from ..walk import Walk

_TRAINING = "set_training"
#: Each gives the object itself.
SETTERS = frozenset(
    (
        *(_TRAINING, "set_evaluate", "set_testing", "set_save", "set_logging", "set_push_to_hub"),
        *("set_optimizer", "set_lr_scheduler", "set_dataloader"),
    )
)
#: The names of the classes that have them.
_CLASSES = ("TrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig", "KTOConfig")
#: The last parameters of ``set_training``, the older of which goes first where it is given.
_SWITCH, _OLD_SWITCH, _POSITION = "activation_checkpointing", "gradient_checkpointing", 7


def are_settings(made: str) -> bool:
    """Whether a call of ``made`` gives such an object."""
    return made.startswith(("transformers.", "trl.")) and made.endswith(_CLASSES)


def set_by_method(walk: Walk, settings: Result, call: Call) -> Value:
    """Record what the method sets of what decides about checkpointing; off is its default for that."""
    if call.method == _TRAINING:
        old = call.keyword(_OLD_SWITCH)
        is_new = isinstance(old, Absent) or may_be_none(old) is True
        given = call.argument(_POSITION, _SWITCH) if is_new else old
        # From transformers 5.23 on the new name is the one that counts, before that either.
        write(walk, settings, _SWITCH, Const(False, call.node) if isinstance(given, Absent) else given, call.node)
    return settings
