"""Conditions on what constructors store and calls pass on: decided where every object is built with the same."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def drop_path(x, p: float = 0.0, training: bool = False):
    if p == 0.0 or not training:
        return x
    return x * (torch.rand(x.shape[0], 1) > p) / (1 - p)

class Drop(nn.Module):
    def __init__(self, p=PROBABILITY):
        super().__init__()
        self.p = p

    def by_function(self, x):
        return drop_path(x, self.p, self.training)

    def forward(self, x):
BODY

class Block(nn.Module):
    def __init__(self, rate=RATE):
        super().__init__()
        self.linear, self.drop = nn.Linear(8, 8), Drop(GIVEN)

    def forward(self, x):
        return x + self.drop(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return x

net = Net()
REST
net(torch.randn(2, 8, requires_grad=True)).sum().backward()
"""
BODIES = {
    "left early": "if not self.training or self.p == 0.0:\n    return x\nreturn x * x.new_empty(2, 1).bernoulli_(0.5)",
    "compared": "if self.training and self.p > 0:\n    x = x + torch.randn_like(x) * self.p\nreturn x",
    "function": "return self.by_function(x)",
}


def _found(body: str, rest: str = "", **parts: str) -> list[str]:
    written = {"PROBABILITY": "0.1", "RATE": "0.2", "GIVEN": "rate", "REST": rest} | parts
    text = SCRIPT.replace("BODY", "\n".join(f"        {line}" for line in body.splitlines()))
    for name, value in written.items():
        text = text.replace(name, value)
    return [found.code for found in check_source(text, "train.py") if found.code == "CKPT108"]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_every_object_is_built_with_decides(body):
    assert _found(body) == ["CKPT108"]
    assert _found(body, GIVEN="") == ["CKPT108"]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(
    "parts",
    [
        {"RATE": "0.0"},
        {"PROBABILITY": "0.0", "GIVEN": ""},
        {"GIVEN": "float(rate)"},
        {"GIVEN": "**options"},
        {"rest": "for module in net.modules():\n    if isinstance(module, Drop):\n        module.p = 0.0"},
        {"rest": "for module in net.modules():\n    setattr(module, name, 0.0)"},
        {"rest": "net.blocks[0].drop = Drop(0.0)"},
    ],
    ids=str,
)
def test_another_value_leaves_the_condition_open(body, parts):
    assert _found(body, **parts) == []


def test_a_draw_with_one_outcome_is_none():
    certain = "return x * x.new_empty(2, 1).bernoulli_(1 - self.p)"
    assert _found(certain, RATE="0.0") == []
    assert _found(certain) == ["CKPT108"]


LAYERS = """
import torch
from torch import nn
from timm.layers import DropPath as Timms
from torch.utils.checkpoint import checkpoint

class Own(nn.Module):
    def __init__(self, drop_prob=None):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if self.drop_prob == 0.0 or not self.training:
            return x
        return x * x.new_empty(x.shape[0], 1).bernoulli_(1 - self.drop_prob)

class Block(nn.Module):
    def __init__(self, dim, drop_path=0.0):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.drop = KIND(drop_path) if drop_path > 0.0 else nn.Identity()

    def forward(self, x):
        return x + self.drop(self.linear(x))

class Net(nn.Module):
    def __init__(self, depth=4, rate=RATE):
        super().__init__()
        rates = RATES
        self.blocks = nn.ModuleList([Block(16, drop_path=rates[i]) for i in range(depth)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return x

net = Net()
net(torch.randn(2, 16, requires_grad=True)).sum().backward()
"""
RISING = "[x.item() for x in torch.linspace(0, rate, depth)]"


@pytest.mark.parametrize("kind", ["Own", "Timms"])
@pytest.mark.parametrize(
    ("rate", "rates", "expected"),
    [
        ("0.1", RISING, ["CKPT108"]),
        ("0.1", "torch.linspace(0, rate, depth).tolist()", ["CKPT108"]),
        ("0.1", "[rate] * depth", ["CKPT108"]),
        ("0.0", RISING, []),
        ("0.1", RISING.replace("depth", "1"), []),
        ("float(text)", RISING, []),
        ("0.1", "read()", []),
    ],
)
def test_a_rate_that_rises_with_the_layers(kind, rate, rates, expected):
    text = LAYERS.replace("KIND", kind).replace("RATES", rates).replace("RATE", rate)
    assert [found.code for found in check_source(text, "train.py") if found.code == "CKPT108"] == expected


@pytest.mark.parametrize(("place", "expected"), [("0", []), ("2", ["CKPT108"]), ("-1", ["CKPT108"])])
def test_the_first_of_the_rising_rates_drops_nothing(place, expected):
    written = {"KIND": "Own", "RATES": "torch.linspace(0, rate, depth)", "RATE": "0.1", "rates[i]": f"rates[{place}]"}
    text = LAYERS
    for name, value in written.items():
        text = text.replace(name, value)
    assert [found.code for found in check_source(text, "train.py") if found.code == "CKPT108"] == expected
