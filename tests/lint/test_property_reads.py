"""A property is a call of its function: what it asks and draws belongs to the region that reads it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import random
from functools import cached_property

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, d=4, norm="batch"):
        super().__init__()
        self.net, self.other = nn.Sequential(nn.Linear(d, d), nn.ReLU()), nn.Linear(d, d)
        self.dense, self.norm = nn.Linear(d, d), norm
        self.final = self.made(d)

    @property
    def made(self):
        return nn.BatchNorm1d if self.norm == "batch" else nn.LayerNorm

    @property
    def kernel(self):
        return self.net if torch.is_grad_enabled() else self.other

    @property
    def scale(self):
        return 1 + random.random()

    @property
    def width(self):
        return self.dense.out_features

    @scale.setter
    def scale(self, value):
        self.given = value

    @cached_property
    def factor(self):
        return 1 + random.random()

    def forward(self, x):
        return BODY

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layer = nn.Linear(4, 4), Layer(MADE)

    def forward(self, x):
        x = self.stem(x)
        return checkpoint(self.layer, x, use_reentrant=REENTRANT)
"""


@pytest.mark.parametrize(
    ("body", "reentrant", "code"),
    [
        ("self.kernel(x)", "True", "CKPT132"),
        ("self.kernel(x)", "False", None),
        ("self.dense(x * self.factor).tanh()", "False", "CKPT115"),
        ("self.dense(x).view(-1, self.width)", "True", None),
        ("self.dense(x.relu())", "True", None),
    ],
)
def test_what_a_property_does_runs_again(body: str, reentrant: str, code: str | None) -> None:
    """One that is read there counts, one that is not read does not, and one with a setter stays open."""
    found = _codes(body, reentrant)
    assert found - {"CKPT403"} == ({code} if code else set())


@pytest.mark.parametrize(("made", "is_wrong"), [("", True), ('norm="layer"', False)])
def test_what_a_property_gives_is_known(made: str, is_wrong: bool) -> None:
    """The class that it chooses is the one that is built."""
    assert ("CKPT106" in _codes("self.final(self.dense(x))", "False", made)) is is_wrong


def _codes(body: str, reentrant: str, made: str = "") -> set[str]:
    text = SCRIPT.replace("BODY", body).replace("REENTRANT", reentrant).replace("MADE", made)
    return {it.code for it in check_source(text, "model.py")}
