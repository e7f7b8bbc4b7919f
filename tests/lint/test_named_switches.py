"""A loop over names that trains the adapters alone: which parts of the program's own model stay frozen."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Lora(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.base = nn.Linear(d, d)
        self.lora_a, self.lora_b = nn.Linear(d, 4, bias=False), nn.Linear(4, d, bias=False)

    def forward(self, x):
        return torch.relu(self.base(x) + self.lora_b(self.lora_a(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(30, 16), nn.Linear(16, 30)
        self.layers = nn.ModuleList([Lora(16) for _ in range(2)])

    def forward(self, ids):
        x = self.emb(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return self.head(x)

net = Net()
for n, p in net.named_parameters():
    LINE
for _ in range(3):
    ids = torch.randint(0, 30, (4, 7))
    nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
"""


def _found(line: str) -> list[str]:
    return [found.code for found in check_source(SCRIPT.replace("LINE", line), "train.py") if found.code == "CKPT104"]


@pytest.mark.parametrize(
    "line",
    [
        'p.requires_grad = "lora_" in n',
        'p.requires_grad_("lora_" in n)',
        'p.requires_grad = "lora_" in n or n.startswith("head")',
        'p.requires_grad = any(part in n for part in ("lora_", "head"))',
        'if "lora_" not in n: p.requires_grad = False',
    ],
)
def test_adapters_behind_a_frozen_embedding_get_no_gradient(line):
    assert _found(line) == ["CKPT104"]


@pytest.mark.parametrize(
    "line",
    [
        'p.requires_grad = "lora_" in n or n.startswith("emb")',
        'p.requires_grad = not n.startswith("head")',
        'p.requires_grad = n.startswith("head")',
        'p.requires_grad = "layers.1." in n',
        "p.requires_grad = n in trained",
        "p.requires_grad = test(n)",
    ],
)
def test_what_trains_in_front_or_not_at_all(line):
    assert _found(line) == []
