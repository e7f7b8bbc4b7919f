"""`if x.requires_grad` in a loop: from the second iteration on, `x` is what the block before gave."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])

    def forward(self, volume):
        return self.run(volume.flatten(2).transpose(1, 2))

    def run(self, x):
        for block in self.blocks:
            if self.training and x.requires_grad:
                GIVEN = checkpoint(lambda h: block(h), x, use_reentrant=False)
            else:
                GIVEN = block(x)
        return GIVEN
"""


@pytest.mark.parametrize(("given", "expected"), [("x", ["CKPT105"]), ("y", [])])
def test_the_result_is_asked_in_the_next_iteration(given, expected):
    text = NET.replace("GIVEN", given)
    assert [finding.code for finding in check_source(text, "net.py")] == expected


def test_what_a_loop_over_data_gives_is_data():
    text = NET.replace("GIVEN", "x").replace("for block in self.blocks:", "for x in self.batches(x):")
    text = text.replace("block(", "self.blocks[0](")
    assert [finding.code for finding in check_source(text, "net.py")] == []
