"""Models for scenarios, made on the simulated card: their weights are whatever its memory held."""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1000,
}
LLAMA_7B = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
}


def causal_lm(shape: dict[str, Any], *, kind: str = "llama", dtype: torch.dtype = torch.bfloat16, **more: Any) -> Any:
    """A causal language model in training mode."""
    config = CONFIG_MAPPING[kind](**{"max_position_embeddings": 32768, "use_cache": False, **shape, **more})
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).train()


def with_lora(model: Any, dropout: float = 0.05) -> Any:
    """The model with adapters of rank 16 on all linear layers, in its own dtype."""
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(r=16, lora_dropout=dropout, target_modules="all-linear", init_lora_weights=False)
    with torch.device("cuda"):
        return get_peft_model(model, adapter, autocast_adapter_dtype=False).to("cuda").train()


def token_ids(rows: int, length: int) -> torch.Tensor:
    """A batch of one token all over."""
    return torch.zeros(rows, length, dtype=torch.long, device="cuda")


def step(model: Any, ids: torch.Tensor) -> None:
    """Forward and backward; gradients of the step before are dropped."""
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
