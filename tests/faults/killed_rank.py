"""Two ranks train over gloo, and one is killed: run by test_killed_rank.py, once a rank.

``killed_rank.py FOLDER STEP`` trains and kills rank 1 as that step begins (never, with 0), from the latest checkpoint on.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from hf_ckpt import SelectiveCkpt


class Kill(TrainerCallback):
    """Ends rank 1 the way a scheduler or the out-of-memory killer does."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == self.at and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, at: int, policy: str) -> None:
    """Print a digest of the weights."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=64, bos_token_id=0, eos_token_id=1))
    blocks = torch.randint(0, 64, (24, 8), generator=torch.Generator().manual_seed(1))
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=2, max_steps=6, save_strategy="steps", save_steps=2, use_cpu=True, seed=1,
        report_to="none", disable_tqdm=True, ddp_backend="gloo", ddp_find_unused_parameters=False,
    )  # fmt: skip
    data = [{"input_ids": block, "labels": block} for block in blocks]
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[SelectiveCkpt(policy), Kill(at)])
    Path(folder).mkdir(exist_ok=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    print("digest", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
