"""The module that an `nn.Sequential` begins with, in the ways one is built: in place, it spoils the region's input."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
from collections import OrderedDict
from torch import nn
from torch.utils.checkpoint import checkpoint

def build(flag, others):
BODY

class Net(nn.Module):
    def __init__(self, flag, others):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.block = build(flag, others)

    def forward(self, x):
        return checkpoint(self.block, self.stem(x), use_reentrant=False)
"""
OVERWRITES = {
    "named": "return nn.Sequential(OrderedDict([('relu', nn.ReLU(inplace=True)), ('conv', nn.Conv2d(8, 8, 3))]))",
    "dict": "parts = OrderedDict()\nparts['relu'] = nn.ReLU(True)\nparts['c'] = nn.Conv2d(8, 8, 3)\nreturn nn.Sequential(parts)",
    "list": "parts = [nn.ReLU(True)]\nparts.append(nn.Conv2d(8, 8, 3))\nreturn nn.Sequential(*parts)",
    "spread": "return nn.Sequential(*[nn.ReLU(True), nn.Conv2d(8, 8, 3)])",
    "nested": "return nn.Sequential(nn.Sequential(*[nn.ReLU(True)]), nn.Conv2d(8, 8, 3))",
    "a dropout": "return nn.Sequential(nn.Dropout2d(0.1, inplace=True), nn.Conv2d(8, 8, 3))",
    "a hard sigmoid": "return nn.Sequential(nn.Hardsigmoid(True), nn.Conv2d(8, 8, 3))",
    "a hard tanh": "return nn.Sequential(nn.Hardtanh(-2.0, 2.0, True), nn.Conv2d(8, 8, 3))",
    "added first": "net = nn.Sequential()\nnet.add_module('relu', nn.ReLU(True))\nfor i in range(flag):\n    net.append(nn.BatchNorm2d(8))\nreturn net",
}
MAY_NOT = {
    "a norm first, sometimes": "parts = [nn.BatchNorm2d(8)] if flag else []\nparts.append(nn.ReLU(True))\nreturn nn.Sequential(*parts)",
    "others first": "return nn.Sequential(*others, nn.ReLU(True))",
    "a copy first": "return nn.Sequential(OrderedDict([('conv', nn.Conv2d(8, 8, 3)), ('relu', nn.ReLU(True))]))",
    "added by their names": "net = nn.Sequential()\nfor name in flag.split('-'):\n    if name == 'relu':\n        net.add_module('relu', nn.ReLU(True))\n    else:\n        net.add_module('norm', nn.BatchNorm2d(8))\nreturn net",
    "a norm added, sometimes": "net = nn.Sequential()\nif flag:\n    net.append(nn.BatchNorm2d(8))\nnet.append(nn.ReLU(True))\nreturn net",
    "behind others": "net = nn.Sequential(*others)\nnet.append(nn.ReLU(True))\nreturn net",
    "drops nothing": "return nn.Sequential(nn.Dropout2d(0.0, inplace=True), nn.Conv2d(8, 8, 3))",
    "may drop nothing": "return nn.Sequential(nn.Dropout2d(flag, inplace=True), nn.Conv2d(8, 8, 3))",
    # torch makes a copy all the same.
    "an alpha dropout": "return nn.Sequential(nn.AlphaDropout(0.1, inplace=True), nn.Conv2d(8, 8, 3))",
    "out of place": "return nn.Sequential(OrderedDict([('relu', nn.ReLU()), ('conv', nn.Conv2d(8, 8, 3))]))",
}


def codes(body: str) -> list[str]:
    text = NET.replace("BODY", textwrap.indent(body, "    "))
    return [finding.code for finding in check_source(text, "train.py") if finding.code == "CKPT117"]


@pytest.mark.parametrize("body", OVERWRITES.values(), ids=OVERWRITES)
def test_the_first_module_overwrites_the_input(body):
    assert codes(body) == ["CKPT117"]


@pytest.mark.parametrize("body", MAY_NOT.values(), ids=MAY_NOT)
def test_the_first_module_may_leave_it(body):
    assert codes(body) == []


OWN = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Branch(nn.Sequential):
BODY

class Net(nn.Module):
    def __init__(self, flag, norm):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.block = Branch(8, flag, norm)

    def forward(self, x):
        return checkpoint(self.block, self.stem(x), use_reentrant=False)
"""
OWN_OVERWRITE = {
    "given": "super().__init__(nn.ReLU(inplace=True), nn.Conv2d(dim, dim, 3))",
    "a list": "parts = [nn.ReLU(True)]\nparts.append(nn.Conv2d(dim, dim, 3))\nsuper().__init__(*parts)",
    "added": "super().__init__()\nself.add_module('relu', nn.ReLU(True))\nself.add_module('conv', nn.Conv2d(dim, dim, 3))",
    "set": "super().__init__()\nself.dim = 3\nself.relu = nn.ReLU(True)\nself.conv = nn.Conv2d(dim, dim, 3)",
}
OWN_MAY_NOT = {
    "out of place": "super().__init__(nn.ReLU(), nn.Conv2d(dim, dim, 3))",
    "in place by the caller": "super().__init__(nn.ReLU(inplace=flag), nn.Conv2d(dim, dim, 3))",
    "a norm first, sometimes": "super().__init__(*([nn.BatchNorm2d(dim)] if flag else []), nn.ReLU(True))",
    "a norm in a list, sometimes": "parts = []\nif flag:\n    parts.append(norm)\nparts.append(nn.ReLU(True))\nsuper().__init__(*parts)",
    "a norm set, sometimes": "super().__init__()\nif flag:\n    self.norm = nn.BatchNorm2d(dim)\nself.relu = nn.ReLU(True)",
    "what the caller gives": "super().__init__()\nself.norm = norm\nself.relu = nn.ReLU(True)",
    "inserted": "super().__init__(nn.ReLU(True), nn.Conv2d(dim, dim, 3))\nself.insert(0, norm)",
    "other branch": "if flag:\n    super().__init__(nn.ReLU(True))\nelse:\n    super().__init__(nn.Conv2d(dim, dim, 3))",
}


def own_codes(body: str, more: str = "") -> list[str]:
    method = "    def __init__(self, dim, flag, norm):\n" + textwrap.indent(body, " " * 8) + more
    found = check_source(OWN.replace("BODY", method), "train.py")
    return [finding.code for finding in found if finding.code == "CKPT117"]


@pytest.mark.parametrize("body", OWN_OVERWRITE.values(), ids=OWN_OVERWRITE)
def test_a_derived_class_begins_in_place(body):
    assert own_codes(body) == ["CKPT117"]
    assert own_codes(body, "\n\n    def forward(self, x):\n        return super().forward(x * 1)") == []


@pytest.mark.parametrize("body", OWN_MAY_NOT.values(), ids=OWN_MAY_NOT)
def test_a_derived_class_may_begin_otherwise(body):
    assert own_codes(body) == []
