"""What draws random numbers inside of a region: whichever way, `preserve_rng_state=False` is said to be wrong."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Part(nn.Module):
    def __init__(self, d=16, p=0.1):
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.p = p
        self.extra = {0}

    def forward(self, x):
        h = self.fc(x)
        return {1}

class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp, self.part, self.out = nn.Linear(8, d), Part(d), nn.Linear(d, 1)

    def forward(self, x):
        return self.out(checkpoint(self.part, self.inp(x), use_reentrant=False, preserve_rng_state=False))
"""
MODULES = {
    "nn.Dropout(0.1)": "self.extra(h)",
    "nn.Dropout1d()": "self.extra(h)",
    "nn.Sequential(nn.GELU(), nn.Dropout(p))": "self.extra(h)",
    "nn.LSTM(16, 16, num_layers=2, dropout=0.2)": "self.extra(h[None])[0][0]",
    "nn.GRU(d, d, 3, True, True, 0.1)": "self.extra(h[None])[0][0]",
    "nn.MultiheadAttention(16, 4, dropout=p)": "self.extra(h[None], h[None], h[None])[0][0]",
    "nn.TransformerEncoderLayer(16, 4)": "self.extra(h[None])[0]",
    "nn.RReLU()": "self.extra(h)",
}
CALLS = (
    "F.dropout(h)",
    "F.dropout(h, 0.1, self.training)",
    "F.dropout(h, p=self.p, training=self.training)",
    "torch.dropout(h, 0.1, self.training)",
    "F.alpha_dropout(h, 0.1, self.training)",
    "F.gumbel_softmax(h, tau=1.0) * h",
    "F.scaled_dot_product_attention(h[None], h[None], h[None], dropout_p=0.1 if self.training else 0.0)[0]",
    "h * torch.bernoulli(torch.full_like(h, 0.9))",
    "h * h.new_empty((h.shape[0], 1)).bernoulli_(0.9)",
    "h + 0.1 * torch.randn(h.shape, device=h.device)",
    "h + torch.empty_like(h).normal_(0, 0.1)",
    "h[torch.randperm(h.size(0))] + h",
    "torch.distributions.Normal(h, 1.0).rsample()",
)
STEADY = {
    "nn.Dropout(0.0)": "self.extra(h)",
    "nn.Dropout(0.5)": "h",
    "nn.LSTM(16, 16, dropout=0.2)": "self.extra(h[None])[0][0]",
    "nn.LSTM(16, 16, num_layers=2)": "self.extra(h[None])[0][0]",
    "nn.MultiheadAttention(16, 4)": "self.extra(h[None], h[None], h[None])[0][0]",
    "nn.GELU()": "F.dropout(h, 0.1, training=False)",
    "nn.ReLU()": "F.softmax(h, -1) * h",
}


def codes(made: str, given: str) -> list[str]:
    return [found.code for found in check_source(SCRIPT.replace("{0}", made).replace("{1}", given))]


@pytest.mark.parametrize("made", MODULES)
def test_a_module_draws(made):
    assert codes(made, MODULES[made]) == ["CKPT108"]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_draws(call):
    assert set(codes("nn.Identity()", call)) == {"CKPT108"}


@pytest.mark.parametrize("made", STEADY)
def test_nothing_draws(made):
    assert "CKPT108" not in codes(made, STEADY[made])
