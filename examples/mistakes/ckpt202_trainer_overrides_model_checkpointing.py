"""What the model was told about checkpointing is replaced by the Trainer, which enables it again."""

import tempfile

from _symptom import TINY, confirm
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def build(output):
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.gradient_checkpointing_enable({"use_reentrant": False, "early_stop": False})  # mistake: CKPT202
    args = TrainingArguments(
        output, max_steps=1, report_to="none", use_cpu=True, disable_tqdm=True, gradient_checkpointing=True
    )
    return Trainer(model=model, args=args, train_dataset=[{"input_ids": [3, 4, 5], "labels": [3, 4, 5]}] * 8)


def main():
    with tempfile.TemporaryDirectory() as output:
        trainer = build(output)
        layer = trainer.model.model.layers[0]
        asked = dict(layer._gradient_checkpointing_func.keywords)
        trainer.train()
        runs_with = dict(layer._gradient_checkpointing_func.keywords)
    confirm(
        "early_stop" in asked and "early_stop" not in runs_with,
        f"the model was given {asked}, it trained with {runs_with}",
    )


if __name__ == "__main__":
    main()
