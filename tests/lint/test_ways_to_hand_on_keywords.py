"""Keywords that a layer gets and hands on to a reentrant checkpoint, which refuses them: by whichever way they come."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import functools, types
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def forward(self, x, mask=None, scale=1.0):
        x = x + torch.tanh(self.lin(x)) * scale
        return x if mask is None else x * mask

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(2)])

    def forward(self, x, mask):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, mask=mask)
        return x

class Recomputed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, *args, **kwargs):
        return checkpoint(self.block, *args, use_reentrant=True, **kwargs)

def recomputed(plain):
    @functools.wraps(plain)
    def forward(*args, **kwargs):
        return checkpoint(plain, *args, use_reentrant=True, **kwargs)
    return forward

net = Net()
{0}
net(torch.rand(2, 8), torch.ones(2, 8)).sum().backward()
"""
WAYS = {
    "class": """\
plain = Block.forward
def forward(self, *args, **kwargs):
    return checkpoint(plain, self, *args, use_reentrant=True, **kwargs)
Block.forward = forward
""",
    "class of a part": """\
def save_memory(net):
    kind = type(net.blocks[0])
    kind.forward = recomputed(kind.forward)
save_memory(net)
""",
    "classes of parts": """\
for block in net.blocks[:1]:
    block.__class__.forward = recomputed(block.__class__.forward)
""",
    "setattr": """\
setattr(Block, "forward", recomputed(Block.forward))
""",
    "objects": """\
for block in net.blocks:
    block.forward = recomputed(block.forward)
""",
    "bound": """\
def forward(self, *args, **kwargs):
    return checkpoint(Block.forward, self, *args, use_reentrant=True, **kwargs)
for block in net.blocks:
    block.forward = types.MethodType(forward, block)
""",
    "partials": """\
def run(plain, *args, **kwargs):
    return checkpoint(plain, *args, use_reentrant=True, **kwargs)
for block in net.blocks:
    block.forward = functools.partial(run, block.forward)
""",
    "wrappers": """\
for i, block in enumerate(net.blocks):
    net.blocks[i] = Recomputed(block)
""",
    "wrappers by number": """\
for i in range(len(net.blocks)):
    net.blocks[i] = Recomputed(net.blocks[i])
""",
    "new list": """\
net.blocks = nn.ModuleList(Recomputed(block) for block in net.blocks)
""",
    "wrapped in a helper": """\
def wrap_all(modules):
    for name, block in modules.named_children():
        modules[int(name)] = Recomputed(block)
wrap_all(net.blocks)
""",
}
FAMILY = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Recomputing(nn.Module):
    recompute = True

    def run(self, *args, **kwargs):
        if self.recompute and self.training:
            return checkpoint(self.compute, *args, use_reentrant=True, **kwargs)
        return self.compute(*args, **kwargs)

    def forward(self, *args, **kwargs):
        return self.run(*args, **kwargs)

class Mix(Recomputing):
    def __init__(self, d=8):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def compute(self, x):
        return x + torch.tanh(self.lin(x))

class Attend(Recomputing):
    def __init__(self, d=8):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def compute(self, x, pad=None):
        return x + torch.tanh(self.lin(x)) * pad

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.attend = nn.ModuleList(Attend() for _ in range(2))
        self.mix = nn.ModuleList(Mix() for _ in range(2))

    def forward(self, x, pad):
        x = self.stem(x)
        for attend, mix in zip(self.attend, self.mix):
            x = mix(attend(x, pad=pad))
        return x

net = Net()
net(torch.rand(2, 8), torch.ones(2, 8)).sum().backward()
"""
#: What of the family is written otherwise, where no keyword comes to the checkpoint.
KEPT = {
    "by position": ("attend(x, pad=pad)", "attend(x, pad)"),
    "not this one": ("class Attend(Recomputing):", "class Attend(Recomputing):\n    recompute = False"),
    "switched off": ("net = Net()", "net = Net()\nfor part in net.attend:\n    part.recompute = False"),
    "taken": ("    def forward(self, *args, **kwargs):", "    def forward(self, *args, pad=None, **kwargs):"),
}


def codes(script: str) -> set[str]:
    return {found.code for found in check_source(script) if found.code == "CKPT301"}


@pytest.mark.parametrize("way", WAYS)
def test_keywords_are_refused(way):
    script = SCRIPT.replace("{0}", WAYS[way])
    assert codes(script)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: mask"):
        exec(script, {})


@pytest.mark.parametrize("way", WAYS)
def test_keywords_are_taken(way):
    script = SCRIPT.replace("{0}", WAYS[way])
    for right in (script.replace("use_reentrant=True", "use_reentrant=False"), script.replace("mask=mask", "mask")):
        assert not codes(right)
        exec(right, {})


def test_layers_with_a_forward_of_their_own_get_keywords():
    script = SCRIPT.replace("{0}", WAYS["class"]).replace("nn.ModuleList([Block(d)", "nn.ModuleList([Other(d)")
    other = "class Other(Block):\n    def forward(self, x, mask):\n        return x * mask\n\n"
    right = script.replace("class Net(nn.Module):", f"{other}class Net(nn.Module):")
    assert not codes(right)
    exec(right, {})


def test_one_class_of_a_family_gets_keywords():
    assert codes(FAMILY)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: pad"):
        exec(FAMILY, {})


@pytest.mark.parametrize("way", KEPT)
def test_no_class_of_a_family_gets_keywords(way):
    script = FAMILY.replace(*KEPT[way])
    assert not codes(script)
    exec(script.replace(" * pad", ""), {})
