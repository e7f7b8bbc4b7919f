"""Modules inside a reentrant checkpoint that ask whether their input needs a gradient: no in the first pass."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
class Fast(nn.Module):
    def forward(self, h):
        if h.requires_grad:
            return nn.functional.gelu(h)
        return h * torch.sigmoid(1.702 * h)
class Block(nn.Module):
    def __init__(self, d, act=None, fast=True):
        super().__init__()
        self.lin, self.act = nn.Linear(d, d), {act}
    def forward(self, x):
        return x + self.act({given})
class Net(nn.Module):
    def __init__(self, d=8, fast=True):
        super().__init__()
        self.inp = nn.Linear(d, d)
        self.blocks = {blocks}
    def forward(self, x):
        return {call}
"""
ONE = "checkpoint(self.blocks, self.inp(x), use_reentrant=True)"
SEGMENTS = "checkpoint_sequential(self.blocks, 2, self.inp(x), use_reentrant=True)"
LOOPED = "nn.Sequential(*(Block(d) for _ in range(4)))"
#: The activation, what it gets, the blocks and the call of them.
BAD = {
    "module": ("Fast()", "self.lin(x)", "Block(d)", ONE),
    "part of a Sequential": ("nn.Sequential(nn.Linear(d, d), Fast())", "self.lin(x)", "Block(d)", ONE),
    "looped segments": ("Fast()", "self.lin(x)", LOOPED, SEGMENTS),
    "first of the segments": ("Fast()", "self.lin(x)", "nn.Sequential(Block(d), nn.Tanh(), nn.Tanh())", SEGMENTS),
    "chosen by a default": ("Fast() if fast else nn.GELU()", "self.lin(x)", "Block(d)", ONE),
    "given": ("act", "self.lin(x)", "Block(d, Fast())", ONE),
}
RIGHT = {
    "non-reentrant": ("Fast()", "self.lin(x)", "Block(d)", ONE.replace("True", "False")),
    "a leaf of its own": ("Fast()", "torch.ones(8)", "Block(d)", ONE),
    "detached": ("Fast()", "self.lin(x).detach()", "Block(d)", ONE),
    "last of the segments": ("Fast()", "self.lin(x)", "nn.Sequential(nn.Tanh(), nn.Tanh(), Block(d))", SEGMENTS),
    "not chosen": ("Fast() if fast else nn.GELU()", "self.lin(x)", "Block(d, fast=False)", ONE),
    "chosen by who knows": ("Fast() if fast else nn.GELU()", "self.lin(x)", "Block(d, fast=fast)", ONE),
    "given to another block": (
        "act",
        "self.lin(x)",
        "Block(d, nn.GELU())\n        self.other = Block(d, Fast())",
        f"self.other({ONE})",
    ),
}


def codes(act, given, blocks, call):
    script = SCRIPT.format(act=act, given=given, blocks=blocks, call=call)
    return {finding.code for finding in check_source(script, "net.py")}


#: What is computed of the input, and asked.
COMPUTED = (
    "torch.tanh(h)",
    "F.gelu(self.lin(h)) * 0.5",
    "nn.functional.softmax(h, -1)",
    "torch.exp(torch.abs(h)) + 1",
)
NOT_COMPUTED = ("torch.ones_like(h)", "torch.tanh(h.detach())", "torch.tanh(torch.randn(8))", "torch.round(h.data)")
ASKS_OF_COMPUTED = """import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
class Soft(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
    def forward(self, h):
        z = {computed}
        q = torch.sin(z) if z.requires_grad else torch.round(z)
        return self.lin(q)
def run(x, d=8):
    return checkpoint(Soft(d), x, use_reentrant=True)
"""


@pytest.mark.parametrize("computed", COMPUTED)
def test_what_a_function_computes_needs_no_gradient_at_first(computed):
    found = check_source(ASKS_OF_COMPUTED.format(computed=computed), "net.py")
    assert [finding.code for finding in found] == ["CKPT132"]


@pytest.mark.parametrize("computed", NOT_COMPUTED)
def test_what_needs_none_in_both_passes(computed):
    assert check_source(ASKS_OF_COMPUTED.format(computed=computed), "net.py") == []


@pytest.mark.parametrize("way", BAD.values(), ids=BAD)
def test_the_passes_take_different_branches(way):
    assert "CKPT132" in codes(*way)


@pytest.mark.parametrize("way", RIGHT.values(), ids=RIGHT)
def test_they_take_the_same(way):
    assert "CKPT132" not in codes(*way)
