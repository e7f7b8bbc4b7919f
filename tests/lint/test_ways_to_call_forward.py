"""How `forward` of a module gets into a checkpoint: whichever way, its hooks are said to be skipped."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def chosen(layer, training):
    return layer.forward if training else layer

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

    def forward(self, x, fast=False):
        for block in self.blocks:
            {}
        return x
"""
RUN = "x = checkpoint(fn, x, use_reentrant=False)"
IN_TRAINING = f"{RUN} if self.training else fn(x)"
WAYS = {
    "variable": ("fn = block.forward", RUN),
    "one for training": ("fn = block.forward if self.training else block", IN_TRAINING),
    "one for training, always": ("fn = block.forward if self.training else block", RUN),
    "branches": ("fn = block.forward", "if not self.training:", "    fn = block", RUN),
    "branches twice": (
        *("if self.training:", "    fn = block.forward", "else:", "    fn = block"),
        *("if self.training:", f"    {RUN}", "else:", "    x = fn(x)"),
    ),
    "gradients": ("fn = block.forward if self.training and torch.is_grad_enabled() else block", IN_TRAINING),
    "in the call": ("x = checkpoint(block.forward if self.training else block, x, use_reentrant=False)",),
    "helper": ("fn = chosen(block, self.training)", IN_TRAINING),
    "of the class": ("x = checkpoint(Block.forward, block, x, use_reentrant=False)",),
    "of torch's class": ("x = checkpoint(nn.Sequential.forward, self.head, x, use_reentrant=False)",),
    "of its type": ("x = checkpoint(type(block).forward, block, x, use_reentrant=False)",),
}
RIGHT = {
    "for evaluation": ("fn = block if self.training else block.forward", IN_TRAINING),
    "branches": (
        *("if self.training:", "    fn = block", "else:", "    fn = block.forward"),
        *("if self.training:", f"    {RUN}", "else:", "    x = fn(x)"),
    ),
    "open": ("fn = block.forward if fast else block", RUN),
    "own": ("fn = super().forward if self.training else block", RUN),
}
#: Whoever calls the object has run its hooks.
OF_A_BASE = """\
import encoder
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Checkpointed(Block):
    def forward(self, x):
        return checkpoint(Block.forward, self, x, use_reentrant=False)

class Stack(nn.Sequential):
    def forward(self, x):
        return checkpoint(nn.Sequential.forward, self, x, use_reentrant=False)

def run(x):
    return checkpoint(encoder.forward, x, use_reentrant=False)
"""


def _found(lines: tuple[str, ...]) -> bool:
    return "CKPT306" in {it.code for it in check_source(SCRIPT.format("\n            ".join(lines)), "t.py")}


@pytest.mark.parametrize("way", WAYS)
def test_found(way):
    assert _found(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_what_goes_through_the_module_is_right(way):
    assert not _found(RIGHT[way])


def test_the_forward_of_a_base_is_right():
    assert not check_source(OF_A_BASE, "t.py")


def test_the_module_is_what_a_method_of_the_class_gets_first():
    text = SCRIPT.format("x = checkpoint(Block.forward, block, x, use_reentrant=False)")
    [found] = [it for it in check_source(text, "t.py") if it.code == "CKPT306"]
    assert found.message.startswith("`Block.forward` skips")
    assert found.message.endswith("; pass `block`")
    assert not found.fix
