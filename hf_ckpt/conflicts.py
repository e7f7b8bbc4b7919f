"""Finds what already checkpoints the layers a policy is about to take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper

from .errors import ConflictError
from .keeper import SwitchKeeper

if TYPE_CHECKING:
    from torch import nn


def check_conflicts(model: nn.Module) -> None:
    """Raise ConflictError when a wrapper or an earlier policy is in place: every layer would be recomputed twice."""
    for name, module in model.named_modules():
        if isinstance(module, ActivationWrapper):
            raise ConflictError(
                f"`{name}` is wrapped in torch's {type(module).__name__} already (accelerate's "
                "fsdp_activation_checkpointing does that): switch that off, hf-ckpt takes its place"
            )
        if isinstance(vars(module).get("_set_gradient_checkpointing"), SwitchKeeper):
            raise ConflictError(
                f"{type(module).__name__} has an hf-ckpt policy already: call `restore()` on its handle first"
            )
