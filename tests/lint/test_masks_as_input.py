"""Masks beside a frozen embedding: what compares numbers gives nothing that needs a gradient."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, mask):
        return self.linear(x) * mask.unsqueeze(-1)

class Net(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.emb = nn.Embedding.from_pretrained(vectors)
        self.scale = nn.Parameter(torch.ones(()))
        self.block, self.head = Block(), nn.Linear(8, 2)

    def forward(self, tokens):
        x = self.emb(tokens)
        mask = MASK
        return self.head(checkpoint(self.block, x, mask, use_reentrant=True).mean(1))

model = Net(torch.randn(50, 8))
tokens = torch.randint(0, 50, (4, 12))
model(tokens).sum().backward()
"""
WITHOUT = ("tokens.eq(0)", "tokens == 0", "(tokens != 0) & (tokens > 2)", "torch.ne(tokens, 0)", "tokens.bool()")
WITH = ("(tokens != 0) * self.scale", "torch.sigmoid(self.scale * tokens)", "self.scale.expand(4, 12)")


def codes(mask: str) -> list[str]:
    return [finding.code for finding in check_source(NET.replace("MASK", mask), "train.py")]


@pytest.mark.parametrize("mask", WITHOUT)
def test_nothing_needs_a_gradient(mask):
    assert codes(mask) == ["CKPT104"]


@pytest.mark.parametrize("mask", WITH)
def test_the_mask_needs_one(mask):
    assert codes(mask) == []
