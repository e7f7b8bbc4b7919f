"""Finds what already checkpoints the layers a policy is about to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .compat.checkpointing import policy_switch
from .compat.wrappers import is_checkpoint_wrapper
from .errors import ConflictError

if TYPE_CHECKING:
    from torch import nn


def check_conflicts(model: nn.Module) -> None:
    """Raise ConflictError when a wrapper or an earlier policy is in place: every layer would be recomputed twice.

    A policy that a training left behind when it ended by an exception is taken off instead.
    """
    _take_off_abandoned(model)
    for name, module in model.named_modules():
        if is_checkpoint_wrapper(module):
            raise ConflictError(
                f"`{name}` is wrapped in torch's {type(module).__name__} already (accelerate's "
                "fsdp_activation_checkpointing does that): switch that off, hf-ckpt takes its place"
            )
        switch = policy_switch(module)
        if switch is not None and switch.owner is None:
            raise ConflictError(
                f"{type(module).__name__} is a copy of a model made while an hf-ckpt policy was on it: call "
                "`restore()` on what put the policy there, and copy the model after that"
            )
        if switch is not None:
            raise ConflictError(
                f"{type(module).__name__} has an hf-ckpt policy already: call `restore()` on what put it there, the "
                "handle that `hf_ckpt.apply` returned or the SelectiveCkpt callback"
            )


def _take_off_abandoned(model: nn.Module) -> None:
    for module in list(model.modules()):
        switch = policy_switch(module)
        if switch is not None and switch.owner is not None and switch.owner.abandoned:
            switch.owner.restore()
