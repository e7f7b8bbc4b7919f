"""Finds what already checkpoints the layers a policy is about to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper

from .errors import ConflictError
from .keeper import SwitchKeeper

if TYPE_CHECKING:
    from torch import nn


def check_conflicts(model: nn.Module) -> None:
    """Raise ConflictError when a wrapper or an earlier policy is in place: every layer would be recomputed twice.

    A policy that a training left behind when it ended by an exception is taken off instead.
    """
    _take_off_abandoned(model)
    for name, module in model.named_modules():
        if isinstance(module, ActivationWrapper):
            raise ConflictError(
                f"`{name}` is wrapped in torch's {type(module).__name__} already (accelerate's "
                "fsdp_activation_checkpointing does that): switch that off, hf-ckpt takes its place"
            )
        keeper = _keeper(module)
        if keeper is not None and keeper.handle is None:
            raise ConflictError(
                f"{type(module).__name__} is a copy of a model made while an hf-ckpt policy was on it: call "
                "`restore()` on what put the policy there, and copy the model after that"
            )
        if keeper is not None:
            raise ConflictError(
                f"{type(module).__name__} has an hf-ckpt policy already: call `restore()` on what put it there, the "
                "handle that `hf_ckpt.apply` returned or the SelectiveCkpt callback"
            )


def _take_off_abandoned(model: nn.Module) -> None:
    for module in list(model.modules()):
        keeper = _keeper(module)
        if keeper is not None and keeper.handle is not None and keeper.handle.abandoned:
            keeper.handle.restore()


def _keeper(module: nn.Module) -> SwitchKeeper | None:
    found = vars(module).get("_set_gradient_checkpointing")
    return found if isinstance(found, SwitchKeeper) else None
