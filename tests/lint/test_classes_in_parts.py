"""Classes whose parts stand in classes that they derive from, and a `forward` that leaves its work to another method."""

from __future__ import annotations

import pytest
from hf_ckpt.lint import check_source

LAYER = """
import torch.nn as nn
from transformers import TrainingArguments
from transformers.modeling_layers import GradientCheckpointingLayer

class Plain(nn.Module):
    pass

class Base({base}):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

class Block(Base):
    def forward(self, hidden_states, attention_mask=None):
        return hidden_states + self.linear(hidden_states)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(4))

    def forward(self, hidden_states, attention_mask=None):
        for layer in self.layers:
            hidden_states = layer(hidden_states=hidden_states, attention_mask=attention_mask)
        return hidden_states

args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={{"use_reentrant": True}})
"""
SIDE = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
        self.balance, self.kept = None, []

class Expert(Base):
    def forward(self, x):
        self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
        return self.linear(x)

class Other(nn.Module):
    def __init__(self):
        super().__init__()
        {other}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x):
        for expert in self.experts:
            x = checkpoint(expert, x, use_reentrant=True)
        return x, sum(expert.balance for expert in self.experts)
"""
METHOD = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Part(nn.Module):
    def inner(self, x, mask):
        {body}

class Block(Part):
    def forward(self, x, mask):
        return checkpoint(self.inner, x, use_reentrant=True)
{more}
"""
ROOT = """
import math
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Part(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.interval = {interval}

class Encoder(Part):
    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if self.training and not i % self.interval:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x
"""
DERIVED = """
class Masked(Block):
    def inner(self, x, mask=None):
        return x
"""
LEFT = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Pair(nn.Module):
    def forward(self, x, past=None, use_cache=False):
        return self._forward_impl(x, past, use_cache)

    def _forward_impl(self, x, past=None, use_cache=False):
        return {result}

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.checkpointing = nn.ModuleList([Pair() for _ in range(4)]), True

    def forward(self, x, stored):
        for layer, one in zip(self.layers, stored):
            if self.checkpointing:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x, _ = layer(x, past=one, use_cache=True)
        return x
"""
CUT = """
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)])

    def forward(self, x):
        return self._forward_impl(x){and_then}

    def features(self, x):
        return self._forward_impl(x)

    def _forward_impl(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.detach()

def train(loader, optimizer):
    net = Net()
    head = nn.Linear(8, 8)
    for x, y in loader:
        loss = {loss}
        loss.backward()
        optimizer.step()
"""
SEQUENTIAL = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Stack(nn.Sequential):
    def forward(self, x):
        return self._forward_impl(x)

    def _forward_impl(self, x):
        for layer in self:
            x = {call}
        return x

def forward(x):
    return checkpoint_sequential(Stack(nn.Linear(8, 8), nn.GELU()), 2, x, use_reentrant=False)
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (LAYER.format(base="GradientCheckpointingLayer"), "CKPT118"),
        (SIDE.format(other="self.linear = nn.Linear(8, 8)"), "CKPT113"),
        (METHOD.format(body="return x * mask", more=""), "CKPT308"),
        (ROOT.format(interval="math.isqrt(len(blocks))"), "CKPT408"),
        (LEFT.format(result="x + 1, past"), "CKPT128"),
        (CUT.format(and_then="", loss="F.mse_loss(net(x), y)"), "CKPT121"),
        (SEQUENTIAL.format(call="layer(x)").replace("return x\n", "return x + 1\n"), "CKPT134"),
    ],
)
def test_the_parts_make_one_class(text: str, code: str) -> None:
    assert [it.code for it in check_source(text, select=[code])] == [code]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (LAYER.format(base="Plain"), "CKPT118"),
        (SIDE.format(other="self.balance = None"), "CKPT113"),
        (METHOD.format(body="raise NotImplementedError", more=""), "CKPT308"),
        (METHOD.format(body="return x * mask", more=DERIVED), "CKPT308"),
        (ROOT.format(interval="4"), "CKPT408"),
        (LEFT.format(result="(x + 1, past) if use_cache else x + 1"), "CKPT128"),
        (CUT.format(and_then="", loss="F.mse_loss(head(x), net.features(x))"), "CKPT121"),
        (SEQUENTIAL.format(call="layer(x)"), "CKPT134"),
    ],
)
def test_their_neighbours_are_right(text: str, code: str) -> None:
    assert [it.code for it in check_source(text, select=[code])] == []
