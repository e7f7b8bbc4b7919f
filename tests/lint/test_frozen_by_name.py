"""Layers that a loop over `named_parameters()` freezes by their names, frozen parameters and buffers."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

CODE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(50, 16)
        {position}
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3))
        for name, p in self.named_parameters():
            if {test}:
                p.requires_grad_(False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.size(1)]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x
"""
FROZEN = "self.pos = nn.Parameter(torch.zeros(32, 16), requires_grad=False)"


@pytest.mark.parametrize("test", ["name.startswith('tok')", "name.startswith('tok.')"])
@pytest.mark.parametrize("position", [FROZEN, "self.register_buffer('pos', torch.zeros(32, 16))"])
def test_a_reentrant_checkpoint_behind_what_is_frozen_loses_its_gradients(position, test):
    assert [finding.code for finding in check_source(CODE.format(position=position, test=test))] == ["CKPT104"]


@pytest.mark.parametrize(
    ("position", "test"),
    [
        ("self.pos = nn.Parameter(torch.zeros(32, 16))", "name.startswith('tok')"),
        (FROZEN, "name.startswith('blocks')"),
        (FROZEN, "name.startswith('')"),
        (FROZEN, "not name.startswith('tok')"),
        (FROZEN, "name.startswith('tok') and p.ndim > 2"),
        ("self.register_buffer('pos', self.tok.weight)", "name.startswith('tok')"),
    ],
)
def test_what_may_carry_a_gradient_is_silent(position, test):
    assert check_source(CODE.format(position=position, test=test)) == []
