"""Blocks that checkpoint a part of themselves, and that a helper checkpoints as a whole."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_BLOCKS = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 32), nn.Linear(32, 8), nn.LayerNorm(8)
    def inner(self, x):
        return self.down(self.up(x).relu())
    def forward(self, x):
        return self.norm(x + self.inner(x)).relu()

class Block(Plain):
    def forward(self, x):
        x = x + checkpoint(self.inner, x, use_reentrant=False)
        return self.norm(x).relu()

def run(layer, *inputs):
    return checkpoint(layer, *inputs, use_reentrant=False)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([BLOCK() for _ in range(3)])
        self.first, self.last = Block(), Plain()
    def maybe(self, layer, x):
        if self.training:
            return checkpoint(layer, x, use_reentrant=False)
        return layer(x)
    def forward(self, x):
"""
_LOOP = "for block in self.blocks:\n    x = {}\nreturn {}\n"
SOURCES = {
    "a function": _LOOP.format("run(block, x)", "x"),
    "a method under a condition": _LOOP.format("self.maybe(block, x)", "x"),
    "a function for others, too": _LOOP.format("run(block, x)", "run(self.last, x)"),
}


def _found(body: str, block: str) -> list[tuple[str, str]]:
    text = _BLOCKS.replace("BLOCK", block) + "".join(f"        {line}\n" for line in body.splitlines())
    return [(found.code, text.splitlines()[found.span.line - 1].strip()) for found in check_source(text, "train.py")]


@pytest.mark.parametrize("body", SOURCES.values(), ids=SOURCES)
def test_a_block_that_checkpoints_a_part_is_found(body):
    assert {code for code, _ in _found(body, "Block")} == {"CKPT402"}
    assert _found(body, "Plain") == []


def test_the_caller_is_named_where_others_give_other_blocks():
    assert _found(SOURCES["a function for others, too"], "Block") == [("CKPT402", "x = run(block, x)")]


def test_one_block_outside_of_a_loop_may_be_meant():
    assert _found("return run(self.first, x)\n", "Plain") == []
