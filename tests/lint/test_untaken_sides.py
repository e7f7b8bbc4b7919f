"""Scripts whose settings decide for the checkpointed call: the plain one beside it never runs, and is compared still."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Conv(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def forward(self, x, edges, weight=None):
        h = self.lin(x)[edges]
        return x + (h if weight is None else h * weight)

class Net(nn.Module):
    def __init__(self, d=8, save_memory=True):
        super().__init__()
        self.save_memory = save_memory
        self.inp = nn.Linear(4, d)
        self.convs = nn.ModuleList([Conv(d) for _ in range(3)])

    def forward(self, x, edges, weight):
        x = self.inp(x)
        for conv in self.convs:
            STEP
        return x

net = Net()
optimizer = torch.optim.Adam(net.parameters())
for x, edges, weight in torch.load("data.pt"):
    loss = net(x, edges, weight).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CHECKPOINTED = "checkpoint(conv, x, edges, use_reentrant=False)"


@pytest.mark.parametrize(
    "step",
    [
        "if not self.save_memory: x = conv(x, edges, weight=weight)\n            else: x = CHECKPOINTED",
        "if self.save_memory: x = CHECKPOINTED\n            else: x = conv(x, edges, weight)",
        "x = CHECKPOINTED if self.save_memory else conv(x, edges, weight)",
        "if not self.save_memory:\n                x = conv(x, edges, weight)\n                continue\n"
        "            x = CHECKPOINTED",
    ],
)
def test_the_plain_call_gets_more(step: str) -> None:
    assert _codes(step.replace("CHECKPOINTED", CHECKPOINTED)) == ["CKPT128"]
    assert _codes(step.replace("CHECKPOINTED", CHECKPOINTED.replace("edges", "edges, weight"))) == []


@pytest.mark.parametrize(
    "step",
    [
        "if not self.save_memory: x = conv(x, edges, weight=weight)\n            x = CHECKPOINTED",
        "if not self.save_memory: x = self.inp(x, edges, weight)\n            else: x = CHECKPOINTED",
        "if not self.save_memory: x = conv(x, edges)\n            else: x = CHECKPOINTED",
    ],
)
def test_no_other_call_of_the_block_or_no_other_side(step: str) -> None:
    assert _codes(step.replace("CHECKPOINTED", CHECKPOINTED)) == []


def _codes(step: str) -> list[str]:
    return [finding.code for finding in check_source(SCRIPT.replace("STEP", step), "train.py")]
