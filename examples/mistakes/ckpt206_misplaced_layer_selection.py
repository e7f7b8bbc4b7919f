"""Every second layer is to be checkpointed, but the wish stands in the dict that torch gets."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    use_cache=False,
)


def layer_runs(model: LlamaForCausalLM) -> int:
    runs: list[str] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: runs.append("mlp"))
    ids = torch.randint(64, (2, 16))
    model(input_ids=ids, labels=ids).loss.backward()
    return len(runs)


def main() -> None:
    right, wrong = LlamaForCausalLM(CONFIG), LlamaForCausalLM(CONFIG)
    right.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=2)
    wrong.activation_checkpointing_enable({"use_reentrant": False, "every_n_layers": 2})  # mistake: CKPT206
    runs = layer_runs(right), layer_runs(wrong)
    assert runs == (6, 8)
    print(f"confirmed: {runs[1]} layer runs in a step instead of {runs[0]}: every layer is checkpointed")


if __name__ == "__main__":
    main()
