"""Whether attention that is computed by a function draws random numbers in a region that does not keep its state."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

MODEL = """\
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Attention(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.out = nn.Linear(8, 8)
        self.rate, self.none, self.given = 0.1, 0.0, rate
        self.drop, self.keep = nn.Dropout(0.1), nn.Dropout(0.0)

    def forward(self, x):
        p = self.rate if self.training else 0.0
        return self.out(F.scaled_dot_product_attention({arguments}))

class Net(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.layers = nn.ModuleList([Attention(rate) for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)
        return x
"""


@pytest.mark.parametrize(
    ("arguments", "draws"),
    [
        ("x, x, x, dropout_p=0.1", True),
        ("x, x, x, None, 0.1", True),
        ("x, x, x, is_causal=True, dropout_p=0.1 if self.training else 0", True),
        ("x, x, x, dropout_p=self.rate if self.training else 0.0", True),
        ("x, x, x, dropout_p=0.0 if not self.training else self.rate", True),
        ("x, x, x, dropout_p=p", True),
        ("x, x, x, dropout_p=self.drop.p if self.training else 0.0", True),
        ("x, x, x", False),
        ("x, x, x, dropout_p=0.0", False),
        ("x, x, x, dropout_p=self.none if self.training else 0.0", False),
        ("x, x, x, dropout_p=0.0 if self.training else self.rate", False),
        ("x, x, x, dropout_p=self.given if self.training else 0.0", False),
        ("x, x, x, dropout_p=self.keep.p if self.training else 0.0", False),
    ],
)
def test_dropout_in_attention(arguments, draws):
    codes = [finding.code for finding in check_source(MODEL.format(arguments=arguments), "model.py")]
    assert codes == ["CKPT108"] * draws
