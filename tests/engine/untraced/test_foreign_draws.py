"""A layer that draws from Python's or NumPy's random numbers draws the same ones in its replay."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from hf_ckpt import apply

CONFIG = LlamaConfig(
    num_hidden_layers=2, hidden_size=16, intermediate_size=24, num_attention_heads=2, vocab_size=31, use_cache=False
)
IDS = torch.arange(2 * 8).reshape(2, 8) % 31


class Mlp(nn.Module):
    """Looks at its values, which a trace cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def draw(self) -> float:
        return random.random()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(self.linear(x).tanh() * self.draw() * (2.0 if x.argmax().item() >= 0 else 1.0))


class DrawsFromNumpy(Mlp):
    def draw(self) -> float:
        return float(np.random.rand())


class Plain(Mlp):
    """One that could be traced, if the trace did not keep what it drew."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).tanh()
        return y.exp() if self.draw() < 0.5 else y.sin()


class DrawsOnce(Mlp):
    drawn: float | None = None

    def draw(self) -> float:
        if self.drawn is None:
            self.drawn = random.random()
        return self.drawn


def trained(kind: type[Mlp], policy: str | None, engine: str) -> list[torch.Tensor]:
    """Gradients of two steps, and what both generators give after them."""
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(CONFIG).train()
    for layer in model.model.layers:
        layer.mlp = kind()
    handle = apply(model, policy, engine=engine) if policy else None
    random.seed(0)
    np.random.seed(0)
    found = []
    for _ in range(2):
        model.zero_grad()
        model(input_ids=IDS, labels=IDS).loss.backward()
        found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
    if handle is not None:
        handle.restore()
    return [*found, torch.tensor([random.random(), np.random.rand()])]


@pytest.mark.parametrize(("policy", "engine"), [("full", "traced"), ("full", "torch"), ("mlp", "traced")])
@pytest.mark.parametrize("kind", [Mlp, DrawsFromNumpy, Plain, DrawsOnce])
def test_a_replay_draws_what_its_forward_drew(kind: type[Mlp], policy: str, engine: str) -> None:
    ours, plain = trained(kind, policy, engine), trained(kind, None, engine)
    assert len(ours) == len(plain)
    assert all(map(torch.equal, ours, plain))
