"""Which steps the Trainer will log."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from transformers.trainer_utils import IntervalStrategy

if TYPE_CHECKING:
    from transformers import TrainerState, TrainingArguments


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
