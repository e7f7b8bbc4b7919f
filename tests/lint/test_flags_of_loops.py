"""Flags that one iteration of a loop sets and the next one asks for: both branches run."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x):
        return checkpoint(self.mlp, x, use_reentrant=False)
"""
REACHED = {
    "set to False": """
def forward(blocks, x):
    first = True
    for block in blocks:
        if first:
            x = block(x)
        else:
            x = checkpoint(block, x)
        first = False
    return x
""",
    "kept": """
def forward(blocks, x):
    skip = None
    for block in blocks:
        y = block(x) if skip is None else checkpoint(block, x + skip)
        skip, x = x, y
    return x
""",
    "while": """
def forward(blocks, x):
    started = False
    while blocks:
        if started:
            x = checkpoint(blocks.pop(), x)
        started = True
    return x
""",
}
NEVER = {
    "not set": """
def forward(blocks, x):
    on = False
    for block in blocks:
        if on:
            x = checkpoint(block, x)
    return x
""",
    "set in each iteration first": """
def forward(blocks, x):
    on = None
    for block in blocks:
        on = False
        if on:
            x = checkpoint(block, x)
    return x
""",
}
TRAIN = """
def train(batches):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    pending = None
    for batch in batches:
        loss = net(batch).mean()
        if pending is not None:
            pending.backward()
            optimizer.step()
            optimizer.zero_grad()
        pending = loss
"""


def codes(text: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + text, "train.py")}


@pytest.mark.parametrize("text", REACHED.values(), ids=REACHED)
def test_another_iteration_comes_there(text):
    assert "CKPT101" in codes(text)


@pytest.mark.parametrize("text", NEVER.values(), ids=NEVER)
def test_no_iteration_comes_there(text):
    assert "CKPT101" not in codes(text)


def test_a_loss_that_waits_for_the_next_iteration():
    assert "CKPT114" in codes(TRAIN)
    assert "CKPT114" not in codes(TRAIN.replace("pending.backward()", "loss.backward()"))
