"""`args.gradient_checkpointing = False` after the arguments are built changes nothing."""

import tempfile

from _symptom import TINY, Executions, confirm, tokens
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


def build(output):
    args = TrainingArguments(
        output, max_steps=1, report_to="none", use_cpu=True, disable_tqdm=True, gradient_checkpointing=True
    )
    args.gradient_checkpointing = False  # mistake: CKPT201
    row = {name: values[0] for name, values in tokens().items()}
    return Trainer(model=LlamaForCausalLM(LlamaConfig(**TINY)), args=args, train_dataset=[row] * 8)


def main():
    with tempfile.TemporaryDirectory() as output:
        trainer = build(output)
        with Executions(trainer.model.model.layers[0].self_attn) as runs:
            trainer.train()
    confirm(runs.count == 2, f"the layer ran {runs.count} times in one step: checkpointing is on")


if __name__ == "__main__":
    main()
