"""Reentrant regions that change their input in place: torch refuses it where the input needs a gradient, as a run shows."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.conv = nn.ReLU(inplace=True), nn.Conv2d(4, 4, 1)
        self.body = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1))

    def forward(self, x):
        return self.conv(BLOCK)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.block = Block()

    def forward(self, image):
        x = self.stem(image)
        return CALL

net = Net()
SETUP
net(torch.randn(2, 3, 4, 4)).mean().backward()
"""
PLAIN = "checkpoint(self.block, x, use_reentrant=True)"
WRONG = [
    ("self.act(x)", PLAIN),
    ("x.mul_(2)", PLAIN),
    ("F.relu(x, inplace=True)", PLAIN),
    ("self.act(x)", "checkpoint(self.block, F.gelu(x), use_reentrant=True)"),
    ("x", "checkpoint(self.block.body, x, use_reentrant=True)"),
    ("x", "checkpoint_sequential(self.block.body, 2, x, use_reentrant=True)"),
]
RIGHT = [
    ("x.relu()", PLAIN),
    ("self.act(x.clone())", PLAIN),
    ("self.act(self.conv(x))", PLAIN),
    ("x", "checkpoint_sequential(self.block.body, 1, x, use_reentrant=True)"),
]


def program(block: str, call: str, setup: str = "") -> str:
    return NET.replace("BLOCK", block).replace("CALL", call).replace("SETUP", setup)


def codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text, "train.py") if finding.code not in ("CKPT210", "CKPT403")]


@pytest.mark.parametrize(("block", "call"), WRONG)
def test_the_backward_pass_raises(block, call):
    assert codes(program(block, call)) == ["CKPT117"]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        exec(program(block, call), {})


@pytest.mark.parametrize(("block", "call"), RIGHT)
def test_the_input_stays(block, call):
    assert codes(program(block, call)) == []
    exec(program(block, call), {})


def test_no_leaf_is_changed_behind_a_frozen_stem():
    text = program("self.act(x)", PLAIN, "net.stem.requires_grad_(False)")
    assert "CKPT117" not in codes(text)
    with pytest.raises(RuntimeError, match="does not require grad"):
        exec(text, {})


def test_an_input_that_may_need_no_gradient_is_open():
    text = program("self.act(x)", PLAIN).replace("        x = self.stem(image)\n", "        x = image\n")
    assert "CKPT117" not in codes(text)
