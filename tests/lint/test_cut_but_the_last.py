"""Results of segments that a loop detaches in every iteration but the last one."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAM = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.embed, self.head, self.count, self.step = nn.Embedding(9, 8), nn.Linear(8, 9), 6, 2
        self.frozen = frozen
        self.layers = nn.ModuleList(
            [nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(self.count)]
        )

    def some(self, start, x):
        for layer in self.layers[start:start + self.step]:
            x = layer(x)
        return x

    def forward(self, ids):
        x, heads = self.embed(ids), []
{body}
        return self.head(x)
"""
_NUMBERED = """
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False)
            if {}:
                x = x.detach().requires_grad_()
"""
_COUNTED = """
        for i in range(self.count):
            x = checkpoint(self.layers[i], x, use_reentrant=False)
            if {}:
                x = x.detach().requires_grad_()
"""
_IN_STEPS = """
        for start in range(0, len(self.layers), self.step):
            x = checkpoint(self.some, start, x, use_reentrant=False)
            if {}:
                x = x.detach().requires_grad_()
"""
WRONG = (
    _NUMBERED.format("i < len(self.layers) - 1"),
    _NUMBERED.format("i != len(self.layers) - 1"),
    _NUMBERED.format("not i == len(self.layers) - 1"),
    _COUNTED.format("i + 1 < self.count"),
    _IN_STEPS.format("start + self.step < len(self.layers)"),
)
RIGHT = (
    _NUMBERED.format("i < self.frozen - 1"),
    _NUMBERED.format("i == self.frozen"),
    _NUMBERED.format("i == len(self.layers) - 1"),
    _COUNTED.format("i < self.frozen"),
    _NUMBERED.format("i < len(self.layers) - 1") + "            heads.append(self.head(x))\n",
)


@pytest.mark.parametrize("body", WRONG)
def test_segments_that_are_cut_off_are_found(body: str) -> None:
    assert [finding.code for finding in check_source(PROGRAM.format(body=body))] == ["CKPT121"]


@pytest.mark.parametrize("body", RIGHT)
def test_a_cut_that_may_be_meant_is_left_alone(body: str) -> None:
    assert not check_source(PROGRAM.format(body=body))
