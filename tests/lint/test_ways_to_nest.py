"""How a checkpointed block checkpoints parts of itself: whichever way, it is said; a stage of blocks is left alone."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Part(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.one, self.two, self.three, self.drop = Part(d), Part(d), Part(d), nn.Dropout(0.1)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
    def forward(self, x):
        {0}

class Net(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(n))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)
"""
HELPER = """\
def remat(function, *args):
    if not torch.is_grad_enabled():
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False)
"""
WAYS = {
    "sum": """\
x = x + checkpoint(self.one, self.norm1(x), use_reentrant=False)
x = x + checkpoint(self.two, self.norm2(x), use_reentrant=False)
return x + self.three(x)
""",
    "augmented": """\
x += checkpoint(self.one, self.norm1(x), use_reentrant=False)
x += checkpoint(self.two, self.norm2(x), use_reentrant=False)
return x
""",
    "dropped": """\
x = x + self.drop(checkpoint(self.one, self.norm1(x), use_reentrant=False))
return x + self.drop(checkpoint(self.two, self.norm2(x), use_reentrant=False))
""",
    "scaled": """\
x = x + 0.5 * checkpoint(self.one, self.norm1(x), use_reentrant=False)
return x + 0.5 * checkpoint(self.two, self.norm2(x), use_reentrant=False)
""",
    "first": """\
x = checkpoint(self.one, x, use_reentrant=False) + x
return checkpoint(self.two, x, use_reentrant=False) + x
""",
    "named": """\
y = checkpoint(self.one, self.norm1(x), use_reentrant=False)
x = x + y
y = checkpoint(self.two, self.norm2(x), use_reentrant=False)
return x + y
""",
    "torch.add": """\
x = torch.add(x, checkpoint(self.one, self.norm1(x), use_reentrant=False))
return torch.add(x, checkpoint(self.two, self.norm2(x), use_reentrant=False))
""",
    "shortcut": """\
shortcut = x
x = self.norm1(x)
x = checkpoint(self.one, x, use_reentrant=False)
x = shortcut + x
return x + checkpoint(self.two, self.norm2(x), use_reentrant=False)
""",
    "normed": """\
h = self.norm1(x)
x = x + checkpoint(self.one, h, use_reentrant=False)
h = self.norm2(x)
return x + checkpoint(self.two, h, use_reentrant=False)
""",
    "parallel": """\
h = self.norm1(x)
return x + checkpoint(self.one, h, use_reentrant=False) + checkpoint(self.two, h, use_reentrant=False)
""",
    "training": """\
if self.training:
    x = x + checkpoint(self.one, x, use_reentrant=False)
    x = x + checkpoint(self.two, x, use_reentrant=False)
else:
    x = x + self.one(x)
    x = x + self.two(x)
return x + self.three(x)
""",
    "helper": """\
x = x + remat(self.one, x)
x = x + remat(self.two, x)
return x + self.three(x)
""",
}
#: A stage, which a checkpoint may be around on purpose, and parts that are not checkpointed in training, or perhaps not.
RIGHT = {
    "stage": """\
x = checkpoint(self.one, x, use_reentrant=False)
x = checkpoint(self.two, x, use_reentrant=False)
return self.three(x)
""",
    "skip over both": """\
y = checkpoint(self.one, x, use_reentrant=False)
y = checkpoint(self.two, y, use_reentrant=False)
return x + y
""",
    "open": """\
if self.deep:
    x = x + checkpoint(self.one, x, use_reentrant=False)
    x = x + checkpoint(self.two, x, use_reentrant=False)
return x + self.three(x)
""",
    "eval only": """\
if not self.training:
    x = x + checkpoint(self.one, x, use_reentrant=False)
    x = x + checkpoint(self.two, x, use_reentrant=False)
return x + self.three(x)
""",
    "none": """\
x = x + self.one(x)
return x + self.two(x)
""",
}


def codes(forward: str) -> set[str]:
    body = textwrap.indent(forward, " " * 8).strip()
    return {found.code for found in check_source(HELPER + SCRIPT.replace("{0}", body))}


@pytest.mark.parametrize("way", WAYS)
def test_a_part_runs_three_times(way):
    assert "CKPT402" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_two_levels_on_purpose(way):
    assert "CKPT402" not in codes(RIGHT[way])
