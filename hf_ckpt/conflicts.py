"""Finds what already checkpoints the layers a policy is about to take."""

from __future__ import annotations

from torch import nn

from .compat.checkpointing import policy_switch
from .compat.wrappers import is_checkpoint_wrapper
from .errors import ConflictError


def check_conflicts(model: nn.Module) -> None:
    """Raise ConflictError when a wrapper or an earlier policy is in place: every layer would be recomputed twice.

    A policy that a training left behind when it ended by an exception is taken off instead.
    """
    _take_off_abandoned(model)
    check_data_parallel(len(model.device_ids) if isinstance(model, nn.DataParallel) else 1)
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


def check_data_parallel(gpus: int) -> None:
    """Raise ConflictError when ``nn.DataParallel`` spreads batches over so many GPUs: it copies the model every step.

    Its copies are new modules each time, on threads of their own: every layer would be checked again in every step, and
    no plan would know what a card holds.
    """
    if gpus > 1:
        raise ConflictError(
            f"nn.DataParallel runs this model on {gpus} GPUs, as Trainer does without a launcher, and copies it every "
            f"step: start one process a GPU with `torchrun --nproc_per_node {gpus} SCRIPT`, or use one GPU with "
            "CUDA_VISIBLE_DEVICES=0"
        )


def _take_off_abandoned(model: nn.Module) -> None:
    for module in list(model.modules()):
        switch = policy_switch(module)
        if switch is not None and switch.owner is not None and switch.owner.abandoned:
            switch.owner.restore()
