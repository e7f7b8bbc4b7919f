"""Three ways to ask a finished model for checkpointing that all do nothing."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def layer_runs(model: LlamaForCausalLM) -> int:
    runs: list[str] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: runs.append("mlp"))
    ids = torch.randint(64, (2, 16))
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return len(runs)


def main() -> None:
    by_config = LlamaForCausalLM(LlamaConfig(**CONFIG))
    by_config.config.gradient_checkpointing = True  # mistake: CKPT205
    by_flag = LlamaForCausalLM(LlamaConfig(**CONFIG))
    by_flag.model.gradient_checkpointing = True  # mistake: CKPT205
    not_called = LlamaForCausalLM(LlamaConfig(**CONFIG))
    not_called.activation_checkpointing_enable  # noqa: B018  # mistake: CKPT205
    runs = [layer_runs(model) for model in (by_config, by_flag, not_called)]
    assert by_flag.is_activation_checkpointing
    assert runs == [2, 2, 2]
    print("confirmed: 2 layer runs in a step of 2 layers, three times: nothing is recomputed")


if __name__ == "__main__":
    main()
