"""How loops go through modules: over chains of lists, and over the letters of a text; whichever way, each is seen."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import itertools
from itertools import chain
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.lin, self.norm = nn.Linear(d, d), nn.BatchNorm1d(d)

    def forward(self, x):
        return self.norm(self.lin(x)).relu()

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.down = nn.ModuleList(Block(d) for _ in range(2))
        self.up = nn.ModuleList(Block(d) for _ in range(2))
        self.stages = nn.ModuleList(nn.ModuleList(Block(d) for _ in range(2)) for _ in range(2))
        for name in "abc":
            setattr(self, name, Block(d))
        for letter in "xyz":
            self.add_module(f"part_{letter}", Block(d))
        self.parts = nn.ModuleDict({name: Block(d) for name in "qkv"})

    def forward(self, x):
        x = self.stem(x)
        for block in {0}:
            x = checkpoint(block, x, use_reentrant=False)
        return x

net = Net()
net(torch.rand(4, 8)).sum().backward()
"""
WAYS = {
    "lists": "chain.from_iterable([self.down, self.up])",
    "tuple of lists": "itertools.chain.from_iterable((self.down, self.up))",
    "list of lists": "chain.from_iterable(self.stages)",
    "spread": "chain(*self.stages)",
    "spread beside": "chain(self.down, *self.stages)",
    "generator": "chain.from_iterable(stage for stage in (self.down, self.up))",
    "attributes": "[getattr(self, name) for name in 'abc']",
    "composed names": "(getattr(self, f'part_{letter}') for letter in 'xyz')",
    "keys": "[self.parts[name] for name in 'qkv']",
    "numbered": "(block for _, block in enumerate(chain.from_iterable([self.down])))",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_norm_is_seen(way):
    script = SCRIPT.replace("{0}", WAYS[way])
    assert {found.code for found in check_source(script)} == {"CKPT106"}
    exec(script, {})


@pytest.mark.parametrize("way", WAYS)
def test_no_norm_is_seen(way):
    script = SCRIPT.replace("{0}", WAYS[way]).replace("nn.BatchNorm1d", "nn.LayerNorm")
    assert not check_source(script)
    exec(script, {})


FROZEN = """\
net = Net()
for parameter in {0}:
    parameter.requires_grad_(False)
"""
PARAMETERS = {
    "generator": "chain.from_iterable(part.parameters() for part in (net.stem, net.parts))",
    "list": "chain.from_iterable([net.stem.parameters(), net.parts.parameters()])",
}


@pytest.mark.parametrize("way", PARAMETERS)
def test_parameters_are_frozen(way):
    script = SCRIPT.replace("{0}", "self.down").replace("nn.BatchNorm1d", "nn.LayerNorm").replace("False", "True")
    assert "CKPT104" not in {found.code for found in check_source(script)}
    frozen = FROZEN.replace("{0}", PARAMETERS[way])
    assert "CKPT104" in {found.code for found in check_source(script.replace("net = Net()\n", frozen))}
