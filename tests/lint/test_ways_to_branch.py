"""Branches beside a checkpoint, written in the ways that scripts write them; runs show which compute the same."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)
        self.drop = nn.Dropout(0.1)
    def forward(self, x, mask=None, scale=1.0):
        h = self.drop(torch.tanh(self.a(x)) * scale)
        return x + (self.b(h) if mask is None else self.b(h) * mask)
class Net(nn.Module):
    def __init__(self, d=8, ckpt=True):
        super().__init__()
        self.ckpt = ckpt
        self.stem = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(4)])
        self.blk = Block(d)
        self.head = nn.Linear(d, d)
        self.skips = nn.ModuleList([nn.Linear(d, d) for _ in range(4)])
    def _last(self, h):
        return self.blk(h)
    def forward(self, x, mask=None):
        h = self.stem(x)
"""
TAIL = """        return self.head(h)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, m in loader:
    net(x, m).sum().backward()
    opt.step()
"""
WRONG = {
    "a shortcut beside the block": """
        for blk, skip in zip(self.blocks, self.skips):
            if self.ckpt and self.training:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) + skip(h)
""",
    "a shortcut by number": """
        for i, blk in enumerate(self.blocks):
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = self.skips[i](h) + blk(h)
""",
    "a shortcut by another name": """
        for blk, skip in zip(self.blocks, self.skips):
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                identity = skip(h)
                h = blk(h)
                h = h + identity
""",
    "a shortcut made before": """
        for blk, skip in zip(self.blocks, self.skips):
            identity = skip(h)
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) + identity
""",
    "its input by another name": """
        for blk in self.blocks:
            identity = h
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) + identity
""",
    "a shortcut added in place": """
        for blk, skip in zip(self.blocks, self.skips):
            if self.ckpt:
                y = checkpoint(blk, h, use_reentrant=False)
            else:
                y = blk(h)
                y += skip(h)
            h = torch.tanh(y)
""",
    "a gate": """
        for blk, gate in zip(self.blocks, self.skips):
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = torch.sigmoid(gate(h)) * blk(h)
""",
    "a gate by a method": """
        for blk, gate in zip(self.blocks, self.skips):
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) * gate(h).sigmoid()
""",
    "slice2": """
        if self.ckpt:
            for blk in self.blocks[:-1]:
                h = checkpoint(blk, h, mask, use_reentrant=False)
        else:
            for blk in self.blocks:
                h = blk(h, mask)
""",
    "first input": """
        for blk in self.blocks:
            if self.ckpt and self.training:
                h = checkpoint(blk, x, mask, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "detach": """
        for blk in self.blocks:
            if self.ckpt and self.training:
                h = checkpoint(blk, h.detach(), mask, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "no mask": """
        for blk in self.blocks:
            if self.ckpt and self.training:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "no scale": """
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(blk, h, mask, use_reentrant=False)
            else:
                h = blk(h, mask, 0.5)
""",
    "kw order": """
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(blk, h, 0.5, use_reentrant=False)
            else:
                h = blk(h, scale=0.5)
""",
    "residual": """
        for blk in self.blocks:
            if self.ckpt:
                h = h + checkpoint(blk, h, mask, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "residual lost": """
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(blk, h, mask, use_reentrant=False)
            else:
                h = h + blk(h, mask)
""",
    "lambda": """
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(lambda t: blk(t), h, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "submodule": """
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(blk.a, h, use_reentrant=False)
            else:
                h = blk(h)
""",
    "twice": """
        if self.ckpt:
            h = checkpoint(self.blk, h, mask, use_reentrant=False)
            h = checkpoint(self.blk, h, mask, use_reentrant=False)
        else:
            h = self.blk(h, mask)
""",
    "reversed2": """
        if self.ckpt:
            for blk in reversed(self.blocks):
                h = checkpoint(blk, h, mask, use_reentrant=False)
        else:
            for blk in self.blocks:
                h = blk(h, mask)
""",
    "detached mask": """
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(blk, h, None, 2.0, use_reentrant=False)
            else:
                h = blk(h)
""",
    "swapped": """
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(blk, mask, h, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
}
RIGHT = {
    "a shortcut in both": """
        for blk, skip in zip(self.blocks, self.skips):
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False) + skip(h)
            else:
                h = blk(h) + skip(h)
""",
    "a shortcut made before and added in both": """
        for blk, skip in zip(self.blocks, self.skips):
            identity = skip(h)
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False) + identity
            else:
                h = blk(h)
                h = h + identity
""",
    "a shortcut added later": """
        for blk, skip in zip(self.blocks, self.skips):
            before = h
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) + skip(h)
            if self.ckpt:
                h = h + skip(before)
""",
    "a shortcut in the region": """
        for blk, skip in zip(self.blocks, self.skips):
            if self.ckpt:
                h = checkpoint(lambda y, b=blk, s=skip: b(y) + s(y), h, use_reentrant=False)
            else:
                h = blk(h) + skip(h)
""",
    "a shortcut of the later blocks": """
        for i, blk in enumerate(self.blocks):
            if i < 2:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) + self.skips[i](h)
""",
    "what is left over in evaluation": """
        if self.training:
            h = checkpoint(self.blk, h, use_reentrant=False)
        else:
            h = h - self.blk(h)
""",
    "something that may be nothing": """
        for blk, extra in zip(self.blocks, self.extras()):
            if self.ckpt:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) + extra(h)
""",
    "a partial gives an argument by its name": """
        from functools import partial
        for blk in self.blocks:
            if self.ckpt:
                h = checkpoint(partial(blk, scale=factor), h, mask, use_reentrant=False)
            else:
                h = blk(h, mask, scale=factor)
""",
    "the first block is not checkpointed": """
        for i, blk in enumerate(self.blocks):
            if self.ckpt:
                h = blk(h, mask) if i == 0 else checkpoint(blk, h, mask, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "a method that runs the block": """
        if self.ckpt:
            h = self.norm(h)
            h = checkpoint(self._last, h, use_reentrant=False)
        else:
            h = self.norm(h)
            h = self.blk(h)
""",
    "the same parts of a list": """
        if self.ckpt:
            for blk in self.blocks[:-1]:
                h = checkpoint(blk, h, mask, use_reentrant=False)
            h = self.blocks[-1](h, mask)
        else:
            for blk in self.blocks:
                h = blk(h, mask)
""",
    "the variable of the loop": """
        if self.ckpt:
            for block in self.blocks:
                h = checkpoint(block, h, mask, use_reentrant=False)
        else:
            for blk in self.blocks:
                h = blk(h, mask)
""",
    "a leaf for a backward pass by hand": """
        for blk in self.blocks:
            if self.ckpt:
                leaf = h.detach().requires_grad_()
                h = checkpoint(blk, leaf, mask, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "another name for the input": """
        for blk in self.blocks:
            kept = h
            if self.ckpt:
                h = checkpoint(blk, kept, mask, use_reentrant=False)
            else:
                h = blk(h, mask)
""",
    "parts of one block": """
        if self.ckpt:
            h = checkpoint(self.blk.a, h, use_reentrant=False)
            h = self.blk.b(h)
        else:
            h = self.blk.a(h)
            h = self.blk.b(h)
""",
}
#: The mode alone decides, and each block works on what the one before it gives.
BY_MODE = {
    "its input": """
        for blk in self.blocks:
            if self.training:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = h + blk(h)
""",
    "a shortcut": """
        for blk, skip in zip(self.blocks, self.skips):
            if self.training:
                h = checkpoint(blk, h, use_reentrant=False)
            else:
                h = blk(h) + skip(h)
""",
}


def codes(branches):
    return [finding.code for finding in check_source(HEAD + branches.lstrip("\n") + TAIL)]


@pytest.mark.parametrize("branches", WRONG.values(), ids=WRONG)
def test_branches_that_compute_something_else(branches):
    assert "CKPT128" in codes(branches)


@pytest.mark.parametrize("branches", BY_MODE.values(), ids=BY_MODE)
def test_an_input_is_added_in_evaluation_alone(branches):
    assert "CKPT128" in codes(branches)


@pytest.mark.parametrize("branches", RIGHT.values(), ids=RIGHT)
def test_branches_that_compute_the_same(branches):
    assert "CKPT128" not in codes(branches)


@pytest.mark.parametrize("branches", WRONG.values(), ids=WRONG)
def test_the_switch_may_be_open(branches):
    """Whether the plain branch is ever taken does not matter."""
    script = HEAD + branches.lstrip("\n") + TAIL.replace("Net()", "Net(ckpt=args.ckpt)")
    assert "CKPT128" in [finding.code for finding in check_source(script)]
