"""Key and value states that layers hand on to each other in a mapping of transformers' own are arguments like others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import cache_utils
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_ckpt import apply

if not hasattr(cache_utils, "KVSharingDict"):
    pytest.skip("this transformers shares no states", allow_module_level=True)


class Layer(GradientCheckpointingLayer):
    def __init__(self, makes: bool) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.norm = nn.LayerNorm(8)
        self.makes = makes

    def forward(self, hidden: torch.Tensor, shared: cache_utils.KVSharingDict) -> torch.Tensor:
        if self.makes:
            shared["full"] = (self.attention(hidden),)
        return self.norm(hidden + self.mlp(hidden * shared["full"][0]))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(makes=True), Layer(makes=False), Layer(makes=False)])

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        shared = cache_utils.KVSharingDict()
        for layer in self.layers:
            hidden = layer(hidden, shared)
        return hidden


def step(model: nn.Module) -> list[torch.Tensor | None]:
    model.zero_grad()
    torch.manual_seed(2)
    model(torch.randn(2, 5, 8)).pow(2).sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("policy", ["full", "mlp", "budget=0.4"])
def test_layers_that_share_states_are_traced(policy: str) -> None:
    torch.manual_seed(0)
    model = Model().train()
    plain = step(model)
    handle = apply(model, policy)
    for _ in range(3):
        with handle.measure():
            ours = step(model)
        assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(plain, ours, strict=True))
    report = handle.report()
    handle.restore()
    assert {layer.reason for layer in report.layers} == {""}
    assert any(layer.replays for layer in report.layers)
