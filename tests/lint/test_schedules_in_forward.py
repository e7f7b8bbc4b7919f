"""Numbers that a forward pass ramps or counts and computes with, however the step is written."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAM = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Annealed(nn.Module):
    def __init__(self, decay):
        super().__init__()
        self.linear, self.heat, self.decay, self.lowest = nn.Linear(8, 8), 5.0, decay, 1.0

    def forward(self, x, moves=False):
        {step}
        return (self.linear(x) / self.heat).softmax(-1)

    def begin(self):
        self.heat = 5.0

    def cool(self):
        self.heat = max(self.lowest, self.heat * self.decay)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Annealed(0.99)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
"""
WRONG = (
    "self.heat = self.heat * 0.99",
    "self.heat = 0.99 * self.heat",
    "self.heat *= self.decay",
    "self.heat = self.heat - (5.0 - self.lowest) / 1000",
    "self.heat = max(self.lowest, self.heat * self.decay)",
    "if self.training: self.heat = max(self.heat * self.decay, self.lowest)",
    "self.heat, self.seen = self.heat * self.decay, 0",
    "self.heat *= self.decay; self.seen = self.lowest",
)
RIGHT = (
    "pass",
    "self.heat = self.decay * 5.0",
    "self.heat = max(self.lowest, self.heat)",
    "if not self.training: self.heat = self.heat * self.decay",
    "if moves: self.heat = self.heat * self.decay",
    "self.seen = self.lowest + 1",
    "self.heat = 5.0; self.heat = self.heat * self.decay",
    "self.heat = self.lowest; self.heat += 1",
    "self.begin(); self.heat *= self.decay",
)


@pytest.mark.parametrize("step", WRONG)
def test_a_number_that_moves_is_found(step: str) -> None:
    assert [finding.code for finding in check_source(PROGRAM.format(step=step))] == ["CKPT107"]


@pytest.mark.parametrize("step", RIGHT)
def test_a_number_that_stays_or_moves_elsewhere_is_left_alone(step: str) -> None:
    assert not check_source(PROGRAM.format(step=step))
