"""A reentrant checkpoint in a `forward` that gets data whole: a dict, a pair, an object with attributes."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from data import dataset, augment

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Bilinear(8, 8, 8) for _ in range(3)])

    def forward(self, {parameters}):
        {body}
        for conv in self.convs:
            x = checkpoint(conv, x, edges, use_reentrant=True)
        return x

embed, net = nn.Linear(8, 8), Net()
optimizer = torch.optim.Adam(net.parameters())
for {loop}:
    {before}
    net({given}).mean().backward()
    optimizer.step()
"""
LOADER, STEPS = "data in DataLoader(dataset)", "_ in range(2)"
MADE = "{'x': torch.randn(4, 8), 'edges': torch.eye(8)[:4]}"
ITEMS, ATTRIBUTES = "x, edges = data['x'], data['edges']", "x, edges = data.x, data.edges"
#: The parameters of `forward`, what it begins with, the loop, what stands before the call, and what that gives.
DATA = [
    ("x, edges", "pass", STEPS, "pass", "torch.randn(4, 8), torch.eye(8)[:4]"),
    ("data", ITEMS, LOADER, "pass", "data"),
    ("data", ITEMS, STEPS, "pass", MADE),
    ("data", ITEMS, STEPS, f"data = {MADE}", "data"),
    ("data", ATTRIBUTES, LOADER, "pass", "data"),
    ("data", ATTRIBUTES, LOADER, "data = data.to('cuda')", "data"),
    ("data", "x, edges = data", LOADER, "pass", "data"),
]
#: The same, where `x` may need a gradient.
OPEN = [
    ("data", ATTRIBUTES, LOADER, "data.x.requires_grad_(True)", "data"),
    ("data", f"data.x.requires_grad = True; {ATTRIBUTES}", LOADER, "pass", "data"),
    ("data", ATTRIBUTES, LOADER, "data.x = embed(data.x)", "data"),
    ("data", ATTRIBUTES, LOADER, "data.x, data.edges = embed(data.x), data.edges", "data"),
    ("data", ATTRIBUTES, LOADER, "data = augment(data)", "data"),
    ("data", ITEMS, STEPS, f"data = {MADE}; data['x'].requires_grad_()", "data"),
    ("data", ITEMS, STEPS, f"data = {MADE}; data['x'] = embed(data['x'])", "data"),
    ("data", ITEMS, STEPS, "pass", MADE.replace("(4, 8)", "(4, 8, requires_grad=True)")),
    ("data", "x, edges = embed(data.x), data.edges", LOADER, "pass", "data"),
]


def _found(case: tuple[str, str, str, str, str]) -> list[str]:
    names = ("parameters", "body", "loop", "before", "given")
    text = SCRIPT.format(**dict(zip(names, case, strict=True)))
    return [found.code for found in check_source(text, "train.py")]


@pytest.mark.parametrize("case", DATA, ids=str)
def test_data_needs_no_gradient(case):
    assert _found(case) == ["CKPT104"]


@pytest.mark.parametrize("case", OPEN, ids=str)
def test_what_may_need_a_gradient(case):
    assert _found(case) == []
