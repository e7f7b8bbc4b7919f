"""Layers that a loop over `named_parameters()` freezes by their names, frozen parameters and buffers."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

CODE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(50, 16)
        {position}
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3))
        for name, p in self.named_parameters():
            if {test}:
                p.requires_grad_(False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.size(1)]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x
"""
FROZEN = "self.pos = nn.Parameter(torch.zeros(32, 16), requires_grad=False)"


@pytest.mark.parametrize("test", ["name.startswith('tok')", "name.startswith('tok.')"])
@pytest.mark.parametrize("position", [FROZEN, "self.register_buffer('pos', torch.zeros(32, 16))"])
def test_a_reentrant_checkpoint_behind_what_is_frozen_loses_its_gradients(position, test):
    assert [finding.code for finding in check_source(CODE.format(position=position, test=test))] == ["CKPT104"]


@pytest.mark.parametrize(
    ("position", "test"),
    [
        ("self.pos = nn.Parameter(torch.zeros(32, 16))", "name.startswith('tok')"),
        (FROZEN, "name.startswith('blocks')"),
        (FROZEN, "name.startswith('')"),
        (FROZEN, "not name.startswith('tok')"),
        (FROZEN, "name.startswith('tok') and p.ndim > 2"),
        ("self.register_buffer('pos', self.tok.weight)", "name.startswith('tok')"),
    ],
)
def test_what_may_carry_a_gradient_is_silent(position, test):
    assert check_source(CODE.format(position=position, test=test)) == []


NESTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(4, 8)
        {position}
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(2))

    def forward(self, x):
        x = self.patch(x){added}
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        {second}
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.encoder(x))

model = Model()
for name, parameter in model.named_parameters():
    if {test}:
        parameter.requires_grad = False
model(torch.randn(2, 4)).sum().backward()
"""
PLAIN = {"position": "pass", "added": "", "second": "pass"}


@pytest.mark.parametrize(
    "test", ["not name.startswith(('encoder.blocks', 'head'))", "name.startswith('encoder.patch')", "'patch' in name"]
)
def test_a_part_of_a_part_is_frozen_by_its_whole_name(test):
    assert [finding.code for finding in check_source(NESTED.format(test=test, **PLAIN))] == ["CKPT104"]


@pytest.mark.parametrize(
    "parts",
    [
        {"test": "not name.startswith('encoder')"},
        {"test": "name.startswith('patch')"},
        {"test": "'patch' in name", "second": "self.momentum = Encoder()"},
        {"test": "'patch' in name", "second": "self.teacher = Encoder()\n        self.encoder = Encoder()"},
        {"test": "'patch' in name", "position": "self.pos = nn.Parameter(torch.zeros(8))", "added": " + self.pos"},
        {"test": "'patch' in name and parameter.ndim > 1"},
    ],
    ids=str,
)
def test_a_part_of_a_part_that_may_train_is_silent(parts):
    assert check_source(NESTED.format(**PLAIN | parts)) == []


STAGES = """
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, frozen_stages=-1):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(2))
        self.frozen_stages = frozen_stages
        self._freeze_stages()

    def _freeze_stages(self):
        if self.frozen_stages >= 0:
            for parameter in self.stem.parameters():
                parameter.requires_grad = False

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

CONFIG = {{"frozen_stages": 0}}
{made}
net(torch.randn(2, 4)).sum().backward()
"""


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("net = Net(frozen_stages=0)", ["CKPT104"]),
        ("net = Net(frozen_stages=CONFIG['frozen_stages'])", ["CKPT104"]),
        ("net = Net()", []),
        ("net = Net(frozen_stages=len(sys.argv) - 2)", []),
        ("net = Net(0)\nother = Net()", []),
        ("net = Net(0)\nnet.frozen_stages = -1\nnet._freeze_stages()", []),
    ],
)
def test_stages_that_the_constructor_is_told_to_freeze(made, expected):
    assert [finding.code for finding in check_source(STAGES.format(made=made))] == expected
