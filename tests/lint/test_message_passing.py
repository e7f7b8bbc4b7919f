"""Layers of PyTorch Geometric: what `propagate` calls belongs to the region that a checkpoint runs."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import random
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import MessagePassing

def shared(*widths):
    layers = []
    for left, right in zip(widths[:-1], widths[1:]):
        layers += [nn.Linear(left, right), nn.BatchNorm1d(right), nn.ReLU()]
    return nn.Sequential(*layers)

class Base(MessagePassing):
    def __init__(self, width):
        super().__init__(aggr="max")
        self.mlp, self.plain, self.width = shared(2 * width, width), nn.Linear(2 * width, width), width

    def forward(self, x, edges):
        return self.propagate(edges, x=x)

"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(8), Layer(8)

    def forward(self, x, edges):
        return checkpoint(self.second, self.first(x, edges), edges, use_reentrant=False)
"""
WRONG = {
    "a norm in the messages": (
        """
class Layer(Base):
    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=-1))
""",
        "CKPT106",
    ),
    "a norm behind them": (
        """
class Layer(Base):
    def update(self, out, x):
        return self.mlp(torch.cat([out, x], dim=-1))
""",
        "CKPT106",
    ),
    "numbers of another generator": (
        """
class Layer(Base):
    def message(self, x_j):
        return x_j * 0.0 if random.random() < 0.1 else x_j
""",
        "CKPT115",
    ),
}
RIGHT = {
    "messages without a norm": """
class Layer(Base):
    def message(self, x_i, x_j):
        return self.plain(torch.cat([x_i, x_j - x_i], dim=-1))
""",
    "a method that nothing calls": """
class Layer(Base):
    def message(self, x_j):
        return x_j

    def warm_up(self, x):
        return self.mlp(torch.cat([x, x], dim=-1))
""",
    "a method of the same name of another class": """
class Other(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mlp = shared(2 * width, width)

    def forward(self, x, edges):
        return self.propagate(edges, x=x)

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=-1))

    def propagate(self, edges, x):
        return x

Layer = Other
""",
}


@pytest.mark.parametrize(("layer", "rule"), WRONG.values(), ids=WRONG)
def test_what_messages_run_is_found(layer: str, rule: str) -> None:
    assert [finding.code for finding in check_source(HEAD + layer + NET)] == [rule]


@pytest.mark.parametrize("layer", RIGHT.values(), ids=RIGHT)
def test_what_no_message_runs_is_left_alone(layer: str) -> None:
    assert not check_source(HEAD + layer + NET)
