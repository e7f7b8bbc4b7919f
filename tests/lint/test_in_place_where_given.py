"""Inputs of a checkpoint that are changed in place where the caller gives another one: `if mask is not None`."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAM = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, mask=None):
{body}
        return self.linear(x).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x, given=None):
        x = self.inner(x)
        mask = torch.arange(8) < 3
        for block in self.blocks:
            x = checkpoint(block, x{mask}, use_reentrant=False)
        return x
"""
ASKED = """
        if mask is not None:
            x.masked_fill_(mask, 0.0)
"""
OTHERWISE = """
        if mask is None:
            y = x
        else:
            x.masked_fill_(mask, 0.0)
"""
LEFT = """
        if mask is None:
            return self.linear(x)
        x.masked_fill_(mask, 0.0)
"""
REBOUND = """
        mask = self.linear.mask
        if mask is not None:
            x.masked_fill_(mask, 0.0)
"""
ANOTHER = """
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
"""


def codes(body: str, mask: str = ", mask") -> set[str]:
    return {finding.code for finding in check_source(PROGRAM.format(body=body, mask=mask), "model.py")}


@pytest.mark.parametrize("body", [ASKED, OTHERWISE, LEFT])
def test_what_is_given_decides(body):
    assert "CKPT117" in codes(body)


@pytest.mark.parametrize("body", [ASKED, OTHERWISE, LEFT])
@pytest.mark.parametrize("mask", ["", ", None", ", given"])
def test_what_is_not_given_or_open_does_not(body, mask):
    assert "CKPT117" not in codes(body, mask)


@pytest.mark.parametrize("body", [REBOUND, ANOTHER])
def test_right_neighbours(body):
    assert "CKPT117" not in codes(body)
