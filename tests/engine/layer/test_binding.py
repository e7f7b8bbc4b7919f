"""Which layers share traces."""

from __future__ import annotations

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_ckpt import apply
from hf_ckpt.engine.tracing.cache import TRACES

from ...models import batch, build, step


def test_layers_with_adapters_share_a_trace() -> None:
    """PEFT writes the adapted module's name in the model into the adapter."""
    model = build("llama", lora=True)
    TRACES.clear()
    apply(model, "full")
    step(model, batch())
    # No gradient flows into the first layer, so it saves less.
    assert len(TRACES._entries) == 2


class Scaled(nn.Linear):
    def __init__(self, role: str) -> None:
        super().__init__(8, 8)
        self.role = role

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden).tanh() * (2 if self.role.endswith("wide") else 1)


class Layer(GradientCheckpointingLayer):
    def __init__(self, role: str) -> None:
        super().__init__()
        self.inner = Scaled(role)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.inner(hidden)


class Model(nn.Module):
    def __init__(self, *roles: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, roles))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def traces_of(*roles: str) -> int:
    model = Model(*roles).train()
    TRACES.clear()
    apply(model, "full")
    model(torch.randn(2, 8, requires_grad=True)).sum().backward()
    return len(TRACES._entries)


def test_a_module_that_knows_its_own_name_may_compute_something_else() -> None:
    assert traces_of("layers.0.inner", "layers.1.inner") == 2


def test_any_other_text_makes_a_difference() -> None:
    assert traces_of("inner narrow", "inner wide") == 2
