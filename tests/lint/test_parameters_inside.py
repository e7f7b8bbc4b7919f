"""`backward(inputs=...)` and `autograd.grad` with the parameters of parts: those in a region, and those behind it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import itertools
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def run(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x

    def forward(self, x):
        x = checkpoint(self.block, self.stem(x), use_reentrant=True)
        return self.head(checkpoint(self.run, x, use_reentrant=True))

net = Net()
params = list(net.layers.parameters())
for _ in range(2):
    loss = net(torch.randn(2, 8)).square().mean()
    STEP
"""
ENTERING = (
    "loss.backward(inputs=list(net.block.parameters()))",
    "loss.backward(inputs=params)",
    "loss.backward(inputs=[p for p in net.layers.parameters() if p.requires_grad])",
    "torch.autograd.backward(loss, inputs=tuple(net.layers.parameters()))",
    "loss.backward(inputs=(net.block[0].weight, net.block[0].bias))",
    "loss.backward(inputs=list(net.block.parameters()) + list(net.layers.parameters()))",
    "loss.backward(inputs=list(itertools.chain(net.block.parameters(), net.layers.parameters())))",
    "torch.autograd.grad(loss, params)",
    "torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)",
)
BEHIND = (
    "loss.backward(inputs=list(net.head.parameters()))",
    "loss.backward(inputs=list(itertools.chain(net.head.parameters(), net.head.parameters())))",
    "torch.autograd.grad(loss, net.head.weight, retain_graph=True)",
    "torch.autograd.grad(loss, list(net.head.parameters()))",
    "net.block(torch.randn(2, 8)).sum().backward(inputs=list(net.block.parameters()))",
)


def _found(step: str) -> list[str]:
    found = check_source(SCRIPT.replace("STEP", step), "train.py")
    return [it.code for it in found if it.code in ("CKPT120", "CKPT305")]


@pytest.mark.parametrize("step", ENTERING)
def test_parameters_in_a_reentrant_region_get_no_gradient_by_name(step):
    assert _found(step) == ["CKPT305" if "grad(" in step else "CKPT120"]


@pytest.mark.parametrize("step", BEHIND)
def test_parameters_behind_it_do(step):
    assert _found(step) == []
