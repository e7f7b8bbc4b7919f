"""A loop checkpoints those of its modules that pass `isinstance`: each is known to be one of them, or to be none."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

class Norm(nn.BatchNorm2d):
    pass

class Plain(nn.Module):
    def forward(self, x):
        return x * 2

class Held(Plain):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(x)

class Net(nn.Module):
    def __init__(self, width, activation, other):
        super().__init__()
        layers: list[nn.Module] = [MODULES]
        self.layers = nn.ModuleList(layers)
        self.simple = False

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            LOOP
        return x
"""
CALL = "x = checkpoint(layer, x, use_reentrant=False) if {} else layer(x)"
NORM = "nn.Conv2d(width, width, 3), nn.BatchNorm2d(width), activation()"
TAKEN = {
    "no convolution": (NORM, "not isinstance(layer, nn.Conv2d)"),
    "under a switch": (NORM, "self.simple and not isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d))"),
    "the norm": (NORM, "isinstance(layer, nn.BatchNorm2d)"),
    "a base of it": (NORM, "isinstance(layer, nn.Module) and not isinstance(layer, nn.Sequential)"),
    "of the file": ("Plain(), Held(width)", "isinstance(layer, Plain)"),
    "by name": ("Plain(), Held(width)", "isinstance(layer, (nn.Linear, Held))"),
}
LEFT_OUT = {
    "the norm": (NORM, "not isinstance(layer, nn.BatchNorm2d)"),
    "all norms": (NORM, "not isinstance(layer, _BatchNorm)"),
    "convolutions": (NORM, "isinstance(layer, (nn.Conv2d, nn.Linear))"),
    "of the file": ("Plain(), Held(width)", "not isinstance(layer, Held)"),
    "by its base": ("Plain(), Held(width), nn.ReLU()", "not isinstance(layer, Plain)"),
    "a derived norm": ("Plain(), Norm(width)", "isinstance(layer, Plain)"),
}
OPEN = {
    "another's class": (NORM, "not isinstance(layer, other.Conv)"),
    "by its place": (NORM, "not isinstance(layer, nn.Conv2d) and i % 2"),
    "not all of it": (NORM, "not (isinstance(layer, nn.BatchNorm2d) and i)"),
}


def found(modules: str, test: str, shown: str = "finding") -> list[str]:
    text = NET.replace("MODULES", modules).replace("LOOP", CALL.format(test))
    findings = [it for it in check_source(text, "train.py", notes=True) if it.code == "CKPT106"]
    return [it.code for it in findings if (it.condition is None) == (shown == "finding")]


@pytest.mark.parametrize(("modules", "test"), TAKEN.values(), ids=TAKEN)
def test_a_norm_that_surely_is_taken_is_a_finding(modules, test):
    assert found(modules, test) == ["CKPT106"]


@pytest.mark.parametrize(("modules", "test"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_norm_that_is_left_out_is_none_and_no_note(modules, test):
    assert found(modules, test) == found(modules, test, "note") == []


@pytest.mark.parametrize(("modules", "test"), OPEN.values(), ids=OPEN)
def test_an_open_condition_makes_a_note(modules, test):
    assert found(modules, test) == []
    assert found(modules, test, "note") == ["CKPT106"]
