"""Prefix tuning of a checkpointed model: the layers never get the prefixes."""

import torch
from _symptom import TINY, confirm, failure, tokens
from peft import PrefixTuningConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    model = LlamaForCausalLM(LlamaConfig(**TINY))
    prefix = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = get_peft_model(model, prefix)  # mistake: CKPT314
    model.gradient_checkpointing_enable()
    return model.train()


def main():
    model, batch = build(), tokens()
    problem = failure(lambda: model(**batch, attention_mask=torch.ones_like(batch["input_ids"])))
    confirm("RuntimeError" in problem, problem)


if __name__ == "__main__":
    main()
