"""Methods of tensors that draw: with `preserve_rng_state=False` the recomputation draws other numbers."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Noise(nn.Module):
    def forward(self, x, generator):
        return DRAWN

noise = Noise()
x = torch.randn(4, 8, requires_grad=True)
generator = torch.Generator()
checkpoint(noise, x, generator, use_reentrant=False, preserve_rng_state=False).sum().backward()
"""


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        ("x * x.new_empty(x.shape).bernoulli_(0.9) / 0.9", ["CKPT108"]),
        ("x + torch.empty_like(x).normal_(0, 0.1)", ["CKPT108"]),
        ("x * torch.full_like(x, 0.9).bernoulli()", ["CKPT108"]),
        ("x * x.new_empty(x.shape).fill_(0.9)", []),
        ("x * torch.full_like(x, 0.9).clamp_(0, 1)", []),
    ],
)
def test_what_a_tensor_draws(drawn, expected):
    found = check_source(NET.replace("DRAWN", drawn), "train.py")
    assert [finding.code for finding in found] == expected
    assert all("()`" in finding.message and "`()`" not in finding.message for finding in found)
