"""What a Trainer says that a policy must know: its arguments, its optimizer, its state and that of a resumed run."""

from __future__ import annotations

import logging
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from transformers.trainer_utils import IntervalStrategy

from hf_ckpt.conflicts import check_data_parallel
from hf_ckpt.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import TrainerState, TrainingArguments

    from hf_ckpt.policy import Policy

logger = logging.getLogger("hf_ckpt")


def check_fsdp_plugin(fsdp_config: Mapping[str, Any] | None, environ: Mapping[str, str]) -> None:
    """Raise ConflictError when FSDP's own activation checkpointing is on: every layer would be recomputed twice."""
    in_arguments = str((fsdp_config or {}).get("activation_checkpointing", "false")).lower()
    in_launcher = environ.get("FSDP_ACTIVATION_CHECKPOINTING", "false").lower()
    if "true" in (in_arguments, in_launcher):
        where = "fsdp_config['activation_checkpointing']" if in_arguments == "true" else "FSDP_ACTIVATION_CHECKPOINTING"
        raise ConflictError(
            f"{where} is on beside SelectiveCkpt, so every layer would be recomputed twice: set it to false, "
            "SelectiveCkpt takes its place"
        )


def check_one_gpu_a_process(args: Any, model: Any) -> None:
    """Raise ConflictError when the Trainer will wrap the model in ``nn.DataParallel`` (Trainer._wrap_model)."""
    if not getattr(model, "is_loaded_in_8bit", False):
        check_data_parallel(args.n_gpu)


def is_compiled(args: Any) -> bool:
    """Whether the Trainer compiles the model: a traced graph has no replay that could be counted."""
    return bool(getattr(args, "torch_compile", False))


def is_logged(args: TrainingArguments, state: TrainerState) -> bool:
    """Whether the step that begins ends in a log; for logs by epoch, whether it is an epoch's last."""
    step: int = state.global_step + 1
    if step == 1 and args.logging_first_step:
        return True
    if args.logging_strategy == IntervalStrategy.STEPS:
        return step % max(1, int(state.logging_steps)) == 0
    if args.logging_strategy == IntervalStrategy.EPOCH and args.num_train_epochs > 0:
        epoch: int = max(1, ceil(state.max_steps / args.num_train_epochs))
        return step % epoch == 0
    return False


def best_known(optimizer: Any, name: str) -> torch.optim.Optimizer | str:
    """The optimizer itself (its state may be there already), or its ``TrainingArguments.optim`` name.

    DeepSpeed puts objects of its own in the optimizer's place, whose class says nothing about their state.
    """
    inner = getattr(optimizer, "optimizer", optimizer)
    return optimizer if isinstance(inner, torch.optim.Optimizer) else name


def warn_of_drift(policy: Policy, state: TrainerState) -> None:
    """Say when a run resumes under another policy than its checkpoint was written under."""
    saved = state.stateful_callbacks.get("SelectiveCkpt") if isinstance(state.stateful_callbacks, dict) else None
    before = saved.get("args", {}).get("policy") if isinstance(saved, dict) else None
    if before is not None and before != str(policy):
        logger.warning("this run resumes with policy `%s`, the checkpoint was written under `%s`", policy, before)
