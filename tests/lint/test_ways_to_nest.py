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

#: A class whose objects, of whatever derived class, are recomputed, and a block that is one and has one as a part.
FAMILY = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Recomputed(nn.Module):
    def __init__(self, remat=True):
        super().__init__()
        self.remat = remat
    def compute(self, x):
        raise NotImplementedError
    def forward(self, x):
        if self.training:
            return checkpoint(self.compute, x, use_reentrant=True)
        return self.compute(x)

class Mlp(Recomputed):
    def __init__(self, d=8):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def compute(self, x):
        return x + self.down(torch.relu(self.up(x)))

class Attention(Mlp):
    def compute(self, x):
        return x + self.down(self.up(x).sigmoid())

class Block(Recomputed):
    def __init__(self, d=8):
        super().__init__()
        self.proj, self.mlp, self.other, self.attention = nn.Linear(d, d), Mlp(d), Mlp(d), Attention(d)
    def compute(self, x):
        return self.mlp(self.proj(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(4)])
    def forward(self, x):
        return self.blocks(x)

net = Net()
"""
MIXIN = FAMILY.replace("Recomputed(nn.Module)", "Recomputed").replace("(Recomputed)", "(Recomputed, nn.Module)")
IN_FAMILY = {
    "method of the class": FAMILY,
    "mixin": MIXIN.replace("        super().__init__()\n        self.remat = remat\n", "        super().__init__()\n"),
    "arguments": FAMILY.replace("(self, x):\n        if", "(self, *args):\n        if").replace(
        "compute, x,", "compute, *args,"
    ),
    "between": FAMILY.replace("Block(Recomputed)", "Block(Middle)").replace(
        "class Block", "class Middle(Recomputed):\n    pass\n\nclass Block"
    ),
    "two parts": FAMILY.replace("self.mlp(self.proj(x))", "self.mlp(self.attention(self.proj(x)))"),
    "followed": FAMILY.replace("use_reentrant=True", "use_reentrant=False").replace(
        "self.mlp(self.proj(x))", "self.proj(self.mlp(x))"
    ),
}
NOT_IN_FAMILY = {
    "own forward": FAMILY.replace(
        "class Block(Recomputed):", "class Block(Recomputed):\n    forward = nn.Identity.forward"
    ),
    "plain part": FAMILY.replace("class Mlp(Recomputed)", "class Mlp(nn.Module)"),
    "its method": FAMILY.replace("self.mlp(self.proj(x))", "self.mlp.compute(self.proj(x))"),
    "stage": FAMILY.replace("self.mlp(self.proj(x))", "self.mlp(self.other(self.proj(x)))"),
    "last": FAMILY.replace("use_reentrant=True", "use_reentrant=False"),
    "flag": FAMILY.replace("if self.training", "if self.remat and self.training").replace(
        "class Mlp(Recomputed):\n    def __init__(self, d=8):\n        super().__init__()",
        "class Mlp(Recomputed):\n    def __init__(self, d=8):\n        super().__init__(False)",
    ),
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


@pytest.mark.parametrize("way", IN_FAMILY)
def test_a_part_of_the_family_runs_three_times(way):
    assert "CKPT402" in {found.code for found in check_source(IN_FAMILY[way])}


@pytest.mark.parametrize("way", NOT_IN_FAMILY)
def test_a_family_with_one_level(way):
    assert "CKPT402" not in {found.code for found in check_source(NOT_IN_FAMILY[way])}
