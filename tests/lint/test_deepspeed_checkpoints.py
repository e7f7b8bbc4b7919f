"""`deepspeed.checkpointing.checkpoint` is torch's reentrant variant, made anew."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

#: By what it shows: the program, and the rule that sees a mistake in it, or nothing.
PROGRAMS = {
    "linear": (
        "CKPT403",
        """
import deepspeed
import torch.nn as nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
    def forward(self, x):
        return self.down(deepspeed.checkpointing.checkpoint(self.up, x).relu())
""",
    ),
    "block": (
        "",
        """
import deepspeed
import torch.nn as nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    def forward(self, x):
        return deepspeed.checkpointing.checkpoint(self.mlp, x)
""",
    ),
    "linear from": (
        "CKPT403",
        """
from deepspeed import checkpointing
import torch.nn as nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.GELU()
    def forward(self, x):
        return checkpointing.checkpoint(self.act, x)
""",
    ),
    "linear runtime": (
        "CKPT403",
        """
from deepspeed.runtime.activation_checkpointing.checkpointing import checkpoint
import torch.nn as nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.GELU()
    def forward(self, x):
        return checkpoint(self.act, x)
""",
    ),
    "configured": (
        "",
        """
import deepspeed
import torch.nn as nn
deepspeed.checkpointing.configure(None, deepspeed_config="ds.json", checkpoint_in_cpu=True)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.GELU()
    def forward(self, x):
        return deepspeed.checkpointing.checkpoint(self.act, x)
""",
    ),
    "whole": (
        "CKPT403",
        """
import deepspeed
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
    def forward(self, x):
        return self.down(self.up(x).relu())
def step(batch, optimizer):
    model = Model()
    batch.requires_grad_()
    loss = deepspeed.checkpointing.checkpoint(model, batch).mean()
    loss.backward()
    optimizer.step()
""",
    ),
    "side": (
        "CKPT113",
        """
import deepspeed
import torch.nn as nn
class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
    def forward(self, x):
        self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
        return self.linear(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))
    def forward(self, x):
        for expert in self.experts:
            x = deepspeed.checkpointing.checkpoint(expert, x)
        return x, sum(expert.balance for expert in self.experts)
""",
    ),
    "bn": (
        "CKPT106",
        """
import deepspeed
import torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    def forward(self, x):
        return deepspeed.checkpointing.checkpoint(self.body, x)
""",
    ),
    "nograd input": (
        "CKPT104",
        """
import deepspeed
import torch
import torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return self.head(deepspeed.checkpointing.checkpoint(self.body, x))
def train(opt):
    net = Net()
    for _ in range(3):
        x = torch.randn(4, 8)
        loss = net(x).sum()
        loss.backward()
        opt.step()
""",
    ),
    "dict": (
        "CKPT116",
        """
import deepspeed
import torch.nn as nn
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        return {"hidden": self.b(self.a(x).relu())}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.layer = Layer()
    def forward(self, x):
        x = self.pre(x)
        return deepspeed.checkpointing.checkpoint(self.layer, x)["hidden"]
""",
    ),
    "random": (
        "CKPT115",
        """
import random
import deepspeed
import torch.nn as nn
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
    def forward(self, x):
        if random.random() < 0.5:
            return x
        return self.a(x).relu() + x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.layer = Layer()
    def forward(self, x):
        x = self.pre(x)
        return deepspeed.checkpointing.checkpoint(self.layer, x)
""",
    ),
    "plain": (
        "",
        """
import deepspeed
import torch.nn as nn
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x, mask):
        return self.b(self.a(x).relu()) * mask
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(Layer() for _ in range(3))
    def forward(self, ids, mask):
        x = self.emb(ids)
        for layer in self.layers:
            def run(x, mask, layer=layer):
                return layer(x, mask)
            x = deepspeed.checkpointing.checkpoint(run, x, mask)
        return x
""",
    ),
}


@pytest.mark.parametrize(("code", "program"), PROGRAMS.values(), ids=PROGRAMS)
def test_its_regions_are_checked(code, program):
    assert [finding.code for finding in check_source(program, "model.py")] == [code] * bool(code)
