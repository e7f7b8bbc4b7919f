"""Fine-tune a real model with LoRA: what changes against a script without hf-ckpt is one import and one line.

Run: `python examples/finetune.py --model NAME_OR_PATH --data FILE_OR_DATASET --column text`.
"""

from __future__ import annotations

import argparse
import os

from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from hf_ckpt import SelectiveCkpt


def main() -> None:
    """Train the adapters and show what each layer kept."""
    options = parse_options()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(options.model)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )

    data = load_text(options.data)
    data = data.map(
        lambda rows: tokenizer(rows[options.column], truncation=True, max_length=options.length),
        batched=True,
        remove_columns=data.column_names,
    )
    checkpointing = SelectiveCkpt()
    trainer = Trainer(
        model,
        TrainingArguments(options.output, max_steps=options.steps, per_device_train_batch_size=options.batch),
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[checkpointing],
    )
    trainer.train()
    model.save_pretrained(options.output)
    print(checkpointing.report)


def load_text(name: str):  # type: ignore[no-untyped-def]  # one of datasets' several classes
    """The rows of a text file, or of a dataset of the hub."""
    if os.path.isfile(name):
        return load_dataset("text", data_files=name, split="train")
    return load_dataset(name, split="train")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model's name on the hub, or its folder")
    parser.add_argument("--data", required=True, help="a text file, or a dataset's name on the hub")
    parser.add_argument("--column", default="text", help="the column that holds the text")
    parser.add_argument("--output", default="adapter", help="folder for checkpoints and the adapter")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048, help="tokens an example is cut to")
    return parser.parse_args()


if __name__ == "__main__":
    main()
