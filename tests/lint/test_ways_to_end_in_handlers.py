"""Handlers around the last computation of a block, behind which only operations follow that save no tensor."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Safe(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.a = nn.Linear(d, d)
    def forward(self, x):
        try:
            return torch.tanh(self.a(x))
        except Exception:
            return self.a(x).sin()
class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.m = Safe(d)
        self.n = nn.LayerNorm(d)
        self.scale = nn.Parameter(torch.ones(d))
        self.add = nn.Linear(d, d)
    def forward(self, x):
        BODY
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return x
"""
LAST = {
    "a method adds": "return self.m(self.n(x)).add(x)",
    "a method adds it": "return x.add(self.m(self.n(x)))",
    "a function adds": "return torch.add(x, self.m(x))",
    "on the left": "return self.m(self.n(x)) + x",
    "in a variable": "h = self.m(self.n(x))\n        return h + x",
    "to the same variable": "x = x + self.m(self.n(x))\n        return x",
    "another shape": "return self.m(self.n(x)).view(x.size(0), -1)",
    "one of two": "return self.m(self.n(x)), None",
    "other views of it": "h = self.m(self.n(x))\n        h = h.transpose(0, 1).contiguous()\n        return h",
    "in place": "x += self.m(self.n(x))\n        return x",
    "in the block itself": "try:\n            h = self.n(x)\n        except Exception:\n            h = self.add(x)\n        return h.add(x)",
    "a part of it": "return self.m(self.n(x))[:, 0]",
}
FOLLOWED = {
    "multiplied": "return self.m(self.n(x)) * self.scale",
    "a layer that is called like a method": "return self.add(self.m(x))",
    "a norm behind it": "return self.n(self.m(x)).add(x)",
    "another layer is added": "h = self.m(x)\n        return h.add(self.n(x))",
    "by an index": "return self.m(x)[x.argmax(-1)]",
    "multiplied by a method": "return self.m(x).mul(self.scale)",
    "a norm behind it, in a variable": "h = self.m(x)\n        h = self.n(h)\n        return h.add(x)",
    "less another layer": "return self.m(x) - self.n(x)",
}


def codes(body):
    return {finding.code for finding in check_source(NET.replace("BODY", body))}


@pytest.mark.parametrize("way", LAST)
def test_the_handler_is_around_the_end(way):
    assert "CKPT313" in codes(LAST[way])


@pytest.mark.parametrize("way", FOLLOWED)
def test_something_that_saves_tensors_follows(way):
    assert "CKPT313" not in codes(FOLLOWED[way])
