"""What an encoder gives without gradients needs none, whichever part of it goes into a checkpoint: a run decides."""

from __future__ import annotations

import sys
import types
import warnings

import pytest
import torch
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from encoders import Encoder

class Projector(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, h):
        return checkpoint(self.net, h, use_reentrant=True)

enc, proj = Encoder(), Projector()
stem, head = nn.Linear(4, 4), nn.Linear(4, 1)
flag = False

@torch.no_grad()
def features(x):
    return enc(x).last_hidden_state

for _ in range(2):
    x = torch.randn(2, 3, 4)
    {body}
    head(proj(h)).sum().backward()
"""
OFF = "with torch.no_grad():\n    "
#: What makes `h`: it needs no gradient.
LOST = (
    OFF + "h = enc(x).last_hidden_state[:, 0]",
    OFF + "out = enc(x)\nh = out.last_hidden_state",
    OFF + "out = enc(x)\nh = out.hidden_states[-1].mean(1)",
    OFF + "out = enc(x)\nh = out['last_hidden_state']",
    OFF + "h = enc.encode(x)",
    OFF + "h = enc.get_text_features(x).float()",
    OFF + "h = enc.encode_latents(x).latent_dist.sample() * 0.18",
    "h = features(x)",
    "h = features(x)[:, -1].flip(0)",
    "h = torch.cat([features(x), x], 1)",
    "h = enc(x).last_hidden_state.detach()",
)
#: The same, where it needs one, or may in another run.
KEPT = (
    "h = enc(x).last_hidden_state[:, 0]",
    "h = enc.encode(x)",
    OFF + "out = enc(x)\nh = stem(out.last_hidden_state)",
    OFF + "out = enc(x)\nh = out.last_hidden_state + head.weight",
    OFF + "h = enc(x).last_hidden_state\nh.requires_grad_()",
    OFF + "out = enc(x)\nout.last_hidden_state.requires_grad_(True)\nh = out.last_hidden_state",
    "with torch.set_grad_enabled(not flag):\n    h = enc(x).last_hidden_state",
    OFF + "h = features(x)\nif not flag:\n    h = stem(x)",
    OFF + "with torch.enable_grad():\n        h = enc(x).last_hidden_state",
    "h = features(x) * enc(x).last_hidden_state",
    OFF + "h = enc.weight",
    OFF + "h = enc.prompt(x)",
)


class Output(dict):
    """Attributes and items at once, as an output of transformers has."""

    __getattr__ = dict.__getitem__


class Encoder(torch.nn.Linear):
    """A stand-in for an encoder of a library, which the program does not show."""

    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        h = super().forward(x)
        return Output(last_hidden_state=h, hidden_states=(x, h))

    def encode(self, x):
        return super().forward(x)

    get_text_features = encode

    def encode_latents(self, x):
        return Output(latent_dist=torch.distributions.Normal(self.encode(x), 1.0))

    def prompt(self, x):
        return self.weight


def _codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text, "train.py")]


def _loses(text: str) -> bool:
    encoders = types.ModuleType("encoders")
    encoders.Encoder = Encoder
    names: dict[str, object] = {}
    sys.modules["encoders"] = encoders
    try:
        with warnings.catch_warnings(action="ignore"):
            exec(compile(text, "train.py", "exec"), names)
    finally:
        del sys.modules["encoders"]
    return names["proj"].net[0].weight.grad is None


@pytest.mark.parametrize("body", LOST)
def test_features_without_a_graph(body):
    text = SCRIPT.format(body=body.replace("\n", "\n    "))
    assert _loses(text)
    assert _codes(text) == ["CKPT104"]


@pytest.mark.parametrize("body", KEPT)
def test_features_that_may_have_a_graph(body):
    text = SCRIPT.format(body=body.replace("\n", "\n    "))
    assert not _loses(text)
    assert "CKPT104" not in _codes(text)
