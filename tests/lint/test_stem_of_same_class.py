"""Checkpoints behind `x.requires_grad` in blocks whose convolutions are of the class that also takes the pictures."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
from torch import nn
from torch.utils.checkpoint import checkpoint

class ConvNorm(nn.Sequential):
    def __init__(self, width, out, stride=1):
        super().__init__(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU6(inplace=True))

class Inverted(nn.Module):
    def __init__(self, width, out, expand):
        super().__init__()
        inner = int(round(width * expand))
        self.conv = nn.Sequential(ConvNorm(width, inner), nn.Conv2d(inner, out, 1, bias=False))

    def forward(self, x):
        if x.requires_grad:
            return checkpoint(self.conv, x, use_reentrant=False)
        return self.conv(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [FIRST]
        for width in (32, 64):
            layers.append(Inverted(width, 2 * width, 6))
        self.features = nn.Sequential(*layers)

    def forward(self, x):
        return self.features(x)
"""


@pytest.mark.parametrize(
    ("first", "found"),
    [("ConvNorm(3, 32, 2)", ["CKPT106"]), ("nn.Conv2d(3, 32, 3)", ["CKPT106"]), ("Inverted(3, 32, 1)", [])],
)
def test_whether_a_block_may_get_pictures(first, found):
    assert [it.code for it in check_source(SCRIPT.replace("FIRST", first), "model.py")] == found
