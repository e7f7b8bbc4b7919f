"""Batches that a script stacks by a comprehension: data, unless something in it computes with what trains."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, 4, 3), nn.GELU(), nn.Conv1d(4, 4, 3))
        self.head = nn.Linear(4, 2)

    def forward(self, sound):
        return self.head(checkpoint(self.stem, sound, use_reentrant=True).mean(-1))

net, encoder, data = Net(), nn.Linear(8, 8), np.load("sound.npy")
optimizer = torch.optim.AdamW([*net.parameters(), *encoder.parameters()])

def draw(items=None):
    starts = torch.randint(100, (4,))
    labels = torch.randint(2, (4,))
    {}
    return x, labels

for step in range(10):
    x, labels = draw(more())
    F.cross_entropy(net(x), labels).backward()
    optimizer.step()
"""
WRONG = (
    "x = torch.stack([torch.from_numpy(data[i:i + 8]) for i in starts])",
    "x = torch.cat([torch.from_numpy(data[i:i + 8]).float() for i in starts]).cuda()",
    "x = pad_sequence([torch.from_numpy(data[i]) for i in starts], batch_first=True)",
)
RIGHT = (
    "x = torch.stack([encoder(torch.from_numpy(data[i:i + 8])) for i in starts])",
    "x = torch.stack([item for item in items])",
    "xs = [torch.from_numpy(data[i]) for i in starts]; xs.append(encoder(xs[0])); x = torch.stack(xs)",
    "xs = [torch.from_numpy(data[i]) for i in starts]; fill(xs); x = torch.stack(xs)",
    "x = torch.stack([torch.from_numpy(data[i]) for i in starts]).requires_grad_()",
)


@pytest.mark.parametrize("batch", WRONG)
def test_a_batch_of_data_needs_no_gradient(batch: str) -> None:
    assert [finding.code for finding in check_source(HEAD.format(batch))] == ["CKPT104"]


@pytest.mark.parametrize("batch", RIGHT)
def test_a_batch_that_may_need_one_is_left_alone(batch: str) -> None:
    assert not check_source(HEAD.format(batch))
