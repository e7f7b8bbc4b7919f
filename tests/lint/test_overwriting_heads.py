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
}
MAY_NOT = {
    "a norm first, sometimes": "parts = [nn.BatchNorm2d(8)] if flag else []\nparts.append(nn.ReLU(True))\nreturn nn.Sequential(*parts)",
    "others first": "return nn.Sequential(*others, nn.ReLU(True))",
    "a copy first": "return nn.Sequential(OrderedDict([('conv', nn.Conv2d(8, 8, 3)), ('relu', nn.ReLU(True))]))",
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
