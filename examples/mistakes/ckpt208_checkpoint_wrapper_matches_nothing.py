"""The script moved from Mistral to Llama, and the check stayed behind."""

from __future__ import annotations

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointWrapper,
    apply_activation_checkpointing,
)
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    use_cache=False,
)


def main() -> None:
    model = LlamaForCausalLM(CONFIG)
    apply_activation_checkpointing(  # mistake: CKPT208
        model, check_fn=lambda module: isinstance(module, MistralDecoderLayer)
    )
    wrappers = sum(isinstance(module, CheckpointWrapper) for module in model.modules())
    runs: list[str] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: runs.append("mlp"))
    ids = torch.randint(64, (2, 16))
    model(input_ids=ids, labels=ids).loss.backward()
    assert (wrappers, len(runs)) == (0, 4)
    print(f"confirmed: {wrappers} wrappers and {len(runs)} layer runs in a step of 4 layers: nothing is recomputed")


if __name__ == "__main__":
    main()
