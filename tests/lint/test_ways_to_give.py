"""What a training loop gives a model for a parameter that its checkpointed branch empties: never None, it is certain."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 8)
    def forward(self, h, pad):
        return h + self.mlp(self.attn(h, h, h, key_padding_mask=pad, need_weights=False)[0])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.ckpt = True
        self.blocks = nn.ModuleList(Block() for _ in range(2))
    def forward(self, x, pad):
        for block in self.blocks:
            if self.ckpt and self.training:
                x = checkpoint(block, x, GIVEN, use_reentrant=False)
            else:
                x = block(x, pad)
        return x

model = Net()
opt = torch.optim.SGD(model.parameters(), 0.1)
def train(loader, device, find):
    for batch in loader:
LINES
        loss.backward()
        opt.step()
        opt.zero_grad()
"""
WAYS = {
    "moved": (
        "x, pad = batch",
        "loss = model(x.to(device), pad.to(device)).mean()",
    ),
    "keyword": (
        "x, pad = batch",
        "loss = model(x, pad=pad.to(device)).mean()",
    ),
    "compare": (
        "x, n = batch",
        "loss = model(x, torch.arange(x.shape[1])[None] >= n[:, None]).mean()",
    ),
    "generator": (
        "x, pad = (t.cuda() for t in batch)",
        "loss = model(x, pad).mean()",
    ),
    "list": (
        "x, pad = [t.to(device) for t in batch]",
        "loss = model(x, pad).mean()",
    ),
    "map": (
        "x, pad = map(lambda t: t.to(device), batch)",
        "loss = model(x, pad).mean()",
    ),
    "bool": (
        "x, pad = batch",
        "pad = pad.bool()",
        "loss = model(x, pad).mean()",
    ),
    "invert": (
        "x, keep = batch",
        "loss = model(x, ~keep.bool()).mean()",
    ),
    "eq": (
        "x, ids = batch",
        "loss = model(x, ids.eq(0)).mean()",
    ),
    "dict": ("loss = model(batch['x'].cuda(), batch['pad'].cuda()).mean()",),
    "helper": (
        "def step(x, pad):",
        "    return model(x, pad).mean()",
        "loss = step(batch[0].cuda(), batch[1].cuda())",
    ),
    "zeros": ("loss = model(batch, torch.zeros(2, 3, dtype=torch.bool)).mean()",),
}
#: Calls that may give None.
OPEN = {
    "open": (
        "x, pad = batch",
        "loss = model(x, pad).mean()",
    ),
    "none once": (
        "x, pad = batch",
        "loss = model(x, pad.cuda()).mean() + model(x, None).mean()",
    ),
    "found": ("loss = model(batch, find(batch)).mean()",),
    "none": ("loss = model(batch, None).mean()",),
    "maybe": (
        "x, pad = batch",
        "pad = pad.cuda() if device else None",
        "loss = model(x, pad).mean()",
    ),
    "add": (
        "x, seen = batch",
        "loss = model(x, seen.add(1)).mean()",
    ),
}


def _found(lines, given):
    loop = "\n".join(f"        {line}" for line in lines)
    return [it.code for it in check_source(SCRIPT.replace("GIVEN", given).replace("LINES", loop), "t.py")]


@pytest.mark.parametrize("way", WAYS)
def test_found(way):
    assert _found(WAYS[way], "None") == ["CKPT128"]
    assert _found(WAYS[way], "pad") == []


@pytest.mark.parametrize("way", OPEN)
def test_what_may_be_none_is_left_alone(way):
    assert _found(OPEN[way], "None") == []
