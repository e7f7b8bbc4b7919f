"""Own classes derived from a BatchNorm of torch: those that leave its statistics alone are one, others may not be."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Norm(nn.BatchNorm2d):
    {0}

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3)
        self.norm = {1}

    def forward(self, x):
        return self.norm(self.conv(x))

class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
"""
BUILT = "def __init__(self, width):\n        super().__init__({0})"
FORWARD = "def forward(self, x):\n        "
ALIKE = (
    *("pass", '"""The norm of the paper."""', BUILT.format("width"), BUILT.format("width, eps=1e-3")),
    f"{FORWARD}return super().forward(x)",
    f"{FORWARD}return super(Norm, self).forward(x.float()).to(x.dtype)",
    f"{FORWARD}with torch.autocast('cpu', enabled=False):\n            y = super().forward(x.float())\n        return y",
    f"{FORWARD}return torch.relu(nn.BatchNorm2d.forward(self, x))",
)
OTHER = (
    BUILT.format("width, momentum=0.0"),
    BUILT.format("width, track_running_stats=False"),
    BUILT.format("width, 1e-5, 0.01, True, False"),
    BUILT.format("width") + "\n        self.momentum = 0.0",
    "def forward(self, x):\n        return nn.functional.batch_norm(x, None, None, training=True)",
    f"{FORWARD}return super().forward(x) if x.shape[0] > 1 else x",
    f"{FORWARD}if x.shape[0] == 1:\n            return x\n        return super().forward(x)",
    f"{FORWARD}self.eval()\n        return super().forward(x)",
    f"{FORWARD}self.momentum = 0.0\n        return super().forward(x)",
    f"{FORWARD}return nn.functional.relu(x)",
    "def train(self, mode=True):\n        return super().train(False)",
)


def codes(body: str, made: str = "Norm(width)") -> list[str]:
    return [found.code for found in check_source(SCRIPT.replace("{0}", body).replace("{1}", made))]


@pytest.mark.parametrize("body", ALIKE)
def test_what_is_like_the_class_of_torch_updates_its_statistics_twice(body):
    assert codes(body) == ["CKPT106"]


@pytest.mark.parametrize("body", OTHER)
def test_what_may_keep_them_is_left_alone(body):
    assert codes(body) == []


def test_settings_of_the_call_count():
    assert codes("pass", "Norm(width, momentum=0.0)") == []
