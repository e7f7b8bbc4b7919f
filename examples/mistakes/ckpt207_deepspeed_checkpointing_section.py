"""DeepSpeed's own section in the Trainer's configuration: models of transformers never call what it configures."""

# slow
# needs deepspeed

import os
import tempfile

from _symptom import TINY, Executions, confirm
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

CONFIG = {
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 2},
    "activation_checkpointing": {"partition_activations": True},
}


def build(output):
    args = TrainingArguments(  # mistake: CKPT207
        output,
        deepspeed=CONFIG,
        max_steps=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    data = [{"input_ids": [3, 4, 5], "labels": [3, 4, 5]}] * 8
    return Trainer(model=LlamaForCausalLM(LlamaConfig(**TINY)), args=args, train_dataset=data)


def main():
    os.environ |= {"DS_ACCELERATOR": "cpu", "ACCELERATE_USE_CPU": "false"}
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29507",
    }
    with tempfile.TemporaryDirectory() as output:
        trainer = build(output)
        layers = trainer.model.model.layers
        with Executions(*layers) as executions:
            trainer.train()
    confirm(
        trainer.is_deepspeed_enabled and executions.count == len(layers),
        f"DeepSpeed trained, and each of {len(layers)} layers ran once: nothing was recomputed, everything was held",
    )


if __name__ == "__main__":
    main()
