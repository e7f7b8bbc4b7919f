"""Tiny models of real architectures, and one training step on them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_ckpt.anatomy.roles import sublayers_by_role
from hf_ckpt.compat.checkpointing import set_checkpointing
from hf_ckpt.engine import TracedReplay

if TYPE_CHECKING:
    from torch import nn

_WIDTH = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 128,
}  # fmt: skip
_KV = {"num_key_value_heads": 2}
_HEAD = {"head_dim": 8}
_DROP = {"attention_dropout": 0.1}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {**_WIDTH, **_KV, **_DROP},
    "qwen2": {**_WIDTH, **_KV},
    "qwen3": {**_WIDTH, **_KV, **_HEAD},
    "gemma3_text": {**_WIDTH, **_KV, **_HEAD, "sliding_window": 8},
    "mistral": {**_WIDTH, **_KV, "sliding_window": 8},
    "phi3": {**_WIDTH, **_KV, "resid_pdrop": 0.1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "gpt2": {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gpt_neox": {**_WIDTH, "attention_dropout": 0.1, "hidden_dropout": 0.1},
    "opt": {
        "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64,
        "word_embed_proj_dim": 32, "max_position_embeddings": 128, "dropout": 0.1, "layerdrop": 0.0,
    },
    "olmo2": {**_WIDTH, **_KV, "pad_token_id": 0},
    "granite": {**_WIDTH, **_KV},
    "cohere2": {**_WIDTH, **_KV, "sliding_window": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "mixtral": {**_WIDTH, **_KV, "num_local_experts": 4},
    "qwen3_moe": {
        **_WIDTH, **_KV, **_HEAD, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "decoder_sparse_step": 1,
    },
    "starcoder2": {**_WIDTH, **_KV, "residual_dropout": 0.1, "embedding_dropout": 0.1},
    "gpt_oss": {**_WIDTH, **_KV, **_HEAD, "num_local_experts": 4, "sliding_window": 8},
    "falcon": {
        "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_dropout": 0.1,
        "new_decoder_architecture": False,
    },
}  # fmt: skip


def build(architecture: str, lora: bool = False, **changes: Any) -> nn.Module:
    """A tiny model in training mode, the same weights every time."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[architecture](**{**ARCHITECTURES[architecture], **changes})
    model = AutoModelForCausalLM.from_config(config).train()
    config.use_cache = False
    if lora:
        from peft import LoraConfig, get_peft_model

        experts = architecture in ("mixtral", "qwen3_moe", "gpt_oss")
        targets = ["q_proj", "v_proj", "o_proj"] if experts else "all-linear"  # PEFT: no dropout on expert weights
        model = get_peft_model(
            model, LoraConfig(r=4, lora_dropout=0.1, target_modules=targets, init_lora_weights=False)
        )
        model.train()
    return model


def install(model: nn.Module, plan: Any) -> list[TracedReplay]:
    """Put an engine into every decoder layer."""
    engines = []
    for layer in decoder_layers(model):
        engine = TracedReplay(f"layer{len(engines)}", plan, sublayers_by_role(layer))
        for _ in set_checkpointing(layer, True, engine):
            pass
        engines.append(engine)
    return engines


def uninstall(model: nn.Module) -> None:
    for layer in decoder_layers(model):
        layer.gradient_checkpointing = False


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def batch(size: int = 2, length: int = 12, pad: int = 0, seed: int = 1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 96, (size, length), generator=generator)
    mask = torch.ones_like(ids)
    if pad:
        mask[0, :pad] = 0
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": mask}


def step(model: nn.Module, inputs: dict[str, torch.Tensor], *, bf16: bool = False, seed: int = 3) -> list[torch.Tensor]:
    """One forward and backward: the loss and all gradients."""
    model.zero_grad()
    torch.manual_seed(seed)
    context = torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext()
    with context:
        loss = model(**inputs).loss
    loss.backward()
    return [loss.detach()] + [p.grad.clone() for p in model.parameters() if p.grad is not None]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
