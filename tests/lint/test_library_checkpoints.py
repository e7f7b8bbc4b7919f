"""Checkpoint functions of other libraries than torch."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.explain.run import explain

TIMM = """
import torch
from torch import nn
from timm.models import checkpoint_seq
from timm.models._manipulate import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear, self.norm = nn.Linear(d, d), NORM

    def forward(self, x):
        return self.norm(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(8) for _ in range(3)])

    def forward(self, x):
        return CALL

net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


def _found(call: str, norm: str) -> list[str]:
    return [found.code for found in check_source(TIMM.replace("CALL", call).replace("NORM", norm), "train.py")]


@pytest.mark.parametrize(
    "call",
    [
        "checkpoint_seq(self.blocks, x)",
        "checkpoint_seq(self.blocks, x, every=2, flatten=True)",
        "checkpoint_seq([*self.blocks], x, skip_last=False)",
    ],
)
def test_running_statistics_in_regions_of_timm(call):
    assert _found(call, "nn.BatchNorm1d(8)") == ["CKPT106"]
    assert _found(call, "nn.LayerNorm(8)") == []


def test_running_statistics_in_a_region_of_the_whole_model():
    assert _found("checkpoint(self.blocks, x)", "nn.BatchNorm1d(8)") == ["CKPT106", "CKPT403"]


def test_the_last_block_of_timm_may_be_left_out():
    assert _found("checkpoint_seq([self.blocks], x, skip_last=True)", "nn.BatchNorm1d(8)") == []


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("from fairscale.nn.checkpoint import checkpoint_wrapper as run", "fairscale"),
        ("from fairscale.nn import checkpoint_wrapper as run", "fairscale"),
        ("from xformers.checkpoint import checkpoint as run", "xformers"),
        ("from megatron.core.tensor_parallel import checkpoint as run", "megatron"),
    ],
)
def test_checkpoints_that_no_rule_judges_are_explained(line, library):
    text = f"from torch import nn\n{line}\nblock = run(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))\n"
    assert check_source(text, "train.py") == []
    assert f"checkpoints a region of its own, by {library}'s function" in str(explain(text, "train.py", {}))
