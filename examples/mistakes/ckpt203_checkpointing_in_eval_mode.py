"""A hand-written loop trains what `from_pretrained` returned, in eval mode: nothing is recomputed."""

from __future__ import annotations

import tempfile

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

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
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(CONFIG).save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
    model.activation_checkpointing_enable()  # mistake: CKPT203
    runs: list[str] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: runs.append("mlp"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        ids = torch.randint(64, (2, 16))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model.is_activation_checkpointing
    assert len(runs) == 2 * CONFIG.num_hidden_layers
    print(f"confirmed: checkpointing is on, and {len(runs)} layer runs in 2 steps mean that nothing was recomputed")


if __name__ == "__main__":
    main()
