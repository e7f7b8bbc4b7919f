"""A `forward` that a base class leaves to its subclasses is read with what they hold."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Base(nn.Module):
    def forward(self, x):
        x = self.stem(x)
        return checkpoint(self.stage, x, use_reentrant=False)
"""
STAGE = """
class Net(Base):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.stage = nn.Sequential(nn.Linear(8, 8), {norm}(8))
"""


def codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text)]


def test_what_a_subclass_holds_is_run():
    assert codes(HEAD + STAGE.format(norm="nn.BatchNorm1d")) == ["CKPT106"]


def test_right_subclasses_are_right():
    assert not codes(HEAD + STAGE.format(norm="nn.LayerNorm"))


def test_each_subclass_is_its_own():
    other = STAGE.replace("class Net", "class Other").format(norm="nn.LayerNorm")
    assert codes(HEAD + STAGE.format(norm="nn.BatchNorm1d") + other) == ["CKPT106"]


@pytest.mark.parametrize("batch", ["self.step = x.mean()", "pass"])
def test_state_of_the_subclass_counts_with_the_forward_of_the_base(batch):
    code = f"""
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Base(nn.Module):
    def forward(self, x):
        y = x - self.mean
        self.mean.lerp_(x.mean(0), 0.1)
        return y

class Norm(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

class Quiet(Base):
    def forward(self, x):
        {batch}
        return x

class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), kind())

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
"""
    assert codes(code + "\nNet(Norm)\n") == ["CKPT107"]
    assert not codes(code + "\nNet(Quiet)\n")
