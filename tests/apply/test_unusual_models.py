"""Layers that save a part of a buffer cut by the length, or write in place into what they saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM, Swinv2Config, Swinv2ForImageClassification

from hf_ckpt import apply

if TYPE_CHECKING:
    from torch import nn


def gpt_neo() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = GPTNeoConfig(
        vocab_size=96, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64, window_size=8, use_cache=False, embed_dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    return GPTNeoForCausalLM(config), {
        "input_ids": torch.arange(24).view(2, 12),
        "labels": torch.arange(24).view(2, 12),
    }


def swin() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    config = Swinv2Config(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4, num_labels=3
    )
    return Swinv2ForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.arange(2)}


@pytest.mark.parametrize("policy", ["full", "mlp", "budget=0.5", "dots_saveable", "segments(2)"])
@pytest.mark.parametrize("build", [gpt_neo, swin])
def test_gradients_are_bitwise_and_layers_replay(build: object, policy: str) -> None:
    assert callable(build)
    torch.manual_seed(0)
    model, batch = build()
    model.train()

    def step() -> list[torch.Tensor | None]:
        model.zero_grad()
        torch.manual_seed(1)
        model(**batch).loss.backward()
        return [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    plain = step()
    handle = apply(model, policy)
    for _ in range(2):
        with handle.measure():
            ours = step()
        assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(plain, ours, strict=True))
    report = handle.report()
    handle.restore()
    assert any(layer.replays for layer in report.layers)
