"""Modules and checkpoints that `map` makes, and classes that a loop chooses for each of its iterations."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
from functools import partial
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
    def forward(self, x):
        return self.norm(x).relu()

class Plain(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, x):
        return self.linear(x).relu()
"""

EACH = """
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x
"""
WHOLE = """
    def forward(self, x):
        return checkpoint(self.layers, x, use_reentrant=False)
"""


def net(layers: str, forward: str) -> str:
    return (
        f"{HEAD}\nclass Net(nn.Module):\n    def __init__(self, map_=None):\n        super().__init__()\n"
        + layers
        + forward
    )


WRONG = {
    "a list": net("        self.layers = nn.ModuleList(map(Block, [8, 8]))", EACH),
    "a list of a list": net("        self.layers = nn.ModuleList(list(map(Block, [8] * 3)))", EACH),
    "unpacked": net("        self.layers = nn.Sequential(*map(Block, (8, 8)))", WHOLE),
    "a lambda": net("        self.layers = nn.ModuleList([*map(lambda width: Block(width), (8, 8))])", EACH),
    "of torch": net("        self.layers = nn.ModuleList(map(nn.BatchNorm1d, [8, 8]))", EACH),
    "of a list with gaps": net(
        "        parts = [nn.Linear(8, 8), nn.BatchNorm1d(8), None]\n"
        "        self.layers = nn.Sequential(*[part for part in parts if part is not None])",
        WHOLE,
    ),
    "filtered": net(
        "        self.layers = nn.Sequential(*filter(None, [nn.Linear(8, 8), None, nn.BatchNorm1d(8)]))", WHOLE
    ),
    "of a loop": net(
        """
        layers = []
        for i in range(3):
            if i == 0:
                norm = nn.Identity
            else:
                norm = nn.BatchNorm1d
            layers.append(nn.Sequential(nn.Linear(8, 8), norm(8)))
        self.layers = nn.ModuleList(layers)
""",
        EACH,
    ),
}
RIGHT = {
    "plain": net("        self.layers = nn.ModuleList(map(Plain, [8, 8]))", EACH),
    "left out of a list": net(
        "        parts = [nn.Linear(8, 8), nn.BatchNorm1d(8), None]\n"
        "        self.layers = nn.Sequential(*[part for part in parts if isinstance(part, nn.Linear)])",
        WHOLE,
    ),
    "filtered by what is open": net(
        "        self.layers = nn.Sequential(*filter(map_, [nn.Linear(8, 8), None, nn.BatchNorm1d(8)]))", WHOLE
    ),
    "none in the place of one": net(
        "        norm = None if map_ else nn.BatchNorm1d(8)\n"
        "        self.layers = nn.Sequential(*filter(None, [nn.Linear(8, 8), norm]))",
        WHOLE,
    ),
    "another map": net(
        "        map = lambda make, widths: [Plain(width) for width in widths]\n"
        "        self.layers = nn.ModuleList(map(Block, [8, 8]))",
        EACH,
    ),
    "not of a loop": net(
        """
        layers = []
        for i in range(3):
            if map_ == "plain":
                norm = nn.Identity
            else:
                norm = nn.BatchNorm1d
            layers.append(nn.Sequential(nn.Linear(8, 8), norm(8)))
        self.layers = nn.ModuleList(layers)
""",
        EACH,
    ),
}


def codes(text: str) -> set[str]:
    return {finding.code for finding in check_source(text, "train.py")}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_is_made_is_known(text):
    assert "CKPT106" in codes(text)


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_something_else_is_not(text):
    assert "CKPT106" not in codes(text)


def test_wrapped_by_map():
    wrapped = "        self.layers = nn.Sequential(*map(checkpoint_wrapper, [Block(), Block()]))"
    forward = "\n    def forward(self, x):\n        return self.layers(x)\n"
    assert "CKPT106" in codes(net(wrapped, forward))
    assert "CKPT106" not in codes(net(wrapped.replace("Block", "Plain"), forward))


def test_a_finding_stands_where_map_is_called_and_offers_no_fix():
    text = HEAD + "def run(blocks, xs):\n    return list(map(checkpoint, blocks, xs))\n"
    (finding,) = [found for found in check_source(text, "train.py") if found.code == "CKPT101"]
    assert text.splitlines()[finding.span.line - 1][finding.span.column - 1 :].startswith("map(checkpoint")
    assert finding.fix is None


def test_a_partial_that_says_the_variant():
    text = "def run(blocks, xs):\n    return list(map(partial(checkpoint, use_reentrant=False), blocks, xs))\n"
    assert codes(HEAD + text) == set()
