"""Checkpointing for a model that only generates: in evaluation mode transformers never looks at it."""

import torch
from _symptom import TINY, confirm, saved_bytes, tokens
from transformers import LlamaConfig, LlamaForCausalLM


def load():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.activation_checkpointing_enable()  # mistake: CKPT211
    model.eval()
    batch = tokens()
    with saved_bytes() as saved:
        model(input_ids=batch["input_ids"], labels=batch["labels"])
    return saved()


def without():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    model.eval()
    batch = tokens()
    with saved_bytes() as saved:
        model(input_ids=batch["input_ids"], labels=batch["labels"])
    return saved()


def main():
    kept, plain = load(), without()
    confirm(kept == plain, f"{kept} bytes are kept with the line and {plain} without it")


if __name__ == "__main__":
    main()
