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
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def causal_lm(
    shape: dict[str, Any],
    *,
    kind: str = "llama",
    dtype: torch.dtype = torch.bfloat16,
    device: str = "cuda",
    **more: Any,
) -> Any:
    """A causal language model in training mode."""
    config = CONFIG_MAPPING[kind](**{"max_position_embeddings": 32768, "use_cache": False, **shape, **more})
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).train()


def with_lora(
    model: Any,
    dropout: float = 0.05,
    *,
    autocast_adapter_dtype: bool = False,
    target_modules: str | list[str] = "all-linear",
) -> Any:
    """The model with adapters of rank 16 on these layers, in its own dtype or, as peft has it, in float32."""
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(r=16, lora_dropout=dropout, target_modules=target_modules, init_lora_weights=False)
    with torch.device("cuda"):
        return get_peft_model(model, adapter, autocast_adapter_dtype=autocast_adapter_dtype).to("cuda").train()


def in_four_bits(model: Any) -> Any:
    """A model on the card, its layers' linear weights as QLoRA stores them, frozen.

    Weights of the meta device are whatever the card's memory held.
    """
    from bitsandbytes.nn import Linear4bit, Params4bit

    linear = [name for name, module in model.model.named_modules() if isinstance(module, torch.nn.Linear)]
    for name in linear:
        plain = model.model.get_submodule(name)
        rows, columns = plain.weight.shape
        packed = Linear4bit(columns, rows, bias=plain.bias is not None, compute_dtype=plain.weight.dtype, device="meta")
        weight = torch.empty_like(plain.weight, device="cuda") if plain.weight.is_meta else plain.weight
        nested = Params4bit(weight.detach(), requires_grad=False, quant_type="nf4", compress_statistics=True)
        packed.weight = nested._quantize(torch.device("cuda"))
        model.model.set_submodule(name, packed)
    _materialize(model)
    model.is_quantized = model.is_loaded_in_4bit = True
    return model.requires_grad_(False)


def _materialize(model: Any) -> None:
    for module in model.modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(tensor.is_meta for tensor in own):
            module.to_empty(device="cuda", recurse=False)


def sharded(model: Any, half: torch.dtype, world: int = 8) -> Any:
    """A model of the meta device as accelerate's FSDP2 shards it over ``world`` cards; this process is the first."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy).to_empty(device="cuda")


def token_ids(rows: int, length: int) -> torch.Tensor:
    """A batch of one token all over."""
    return torch.zeros(rows, length, dtype=torch.long, device="cuda")


def step(model: Any, ids: torch.Tensor) -> None:
    """Forward and backward; gradients of the step before are dropped."""
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
