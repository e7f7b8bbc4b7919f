"""Gradients of a small Llama under policies, beside those without: in float32 on the CPU, with real values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import hf_ckpt

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENS = 1024
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 896,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}


def differences(policies: Sequence[str]) -> dict[str, float]:
    """By policy the largest relative difference of a parameter's gradient: the norm of it, over that of the gradient."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE, use_cache=False), dtype=torch.float32).train()
    ids = torch.randint(0, SHAPE["vocab_size"], (1, TOKENS))
    plain = _gradients(model, ids)
    return {policy: _differs(model, ids, plain, policy) for policy in policies}


def _differs(model: torch.nn.Module, ids: torch.Tensor, plain: list[torch.Tensor], policy: str) -> float:
    handle = hf_ckpt.apply(model, policy)
    ours = _gradients(model, ids)
    handle.restore()
    return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, plain, strict=True))


def _gradients(model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]
