"""A decoder layer gets a new `forward`, and loses the checkpoint that was in the old one."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    use_cache=False,
)


def scaled_residual(self, hidden_states: torch.Tensor, **kwargs: object) -> torch.Tensor:
    attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
    hidden_states = hidden_states + 0.5 * attended
    return hidden_states + 0.5 * self.mlp(self.post_attention_layernorm(hidden_states))


def layer_runs(model: LlamaForCausalLM) -> int:
    runs: list[str] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: runs.append("mlp"))
    ids = torch.randint(64, (2, 16))
    model(input_ids=ids, labels=ids).loss.backward()
    return len(runs)


def main() -> None:
    model = LlamaForCausalLM(CONFIG)
    model.activation_checkpointing_enable()
    before = layer_runs(model)
    LlamaDecoderLayer.forward = scaled_residual  # mistake: CKPT204
    model = LlamaForCausalLM(CONFIG)
    model.activation_checkpointing_enable()
    after = layer_runs(model)
    assert model.is_activation_checkpointing
    assert (before, after) == (8, 4)
    print(f"confirmed: {before} layer runs in a step before the patch and {after} after it: nothing is recomputed")


if __name__ == "__main__":
    main()
