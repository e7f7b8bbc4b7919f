"""A loader that returns its model in eval mode: who trains it switches it; one that freezes, or is trained, does not."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

MODEL = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        return x + torch.relu(self.bn(self.conv(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

"""
LOADER = """
def load(path):
    model = Net()
    model.load_state_dict(torch.load(path))
    model.eval()
    return model
"""
ANY = """
def fill(model, state):
    model.load_state_dict(state)
    if len(state) == 3:
        return model.eval()
    return model

def net(state=None):
    return Net() if state is None else fill(Net(), state)
"""
TRAINED = """
def train(batches):
    model = load("weights.pt")
    for x in batches:
        model(x).mean().backward()
"""
FREEZING = LOADER.replace("    return", "    for p in model.parameters():\n        p.requires_grad = False\n    return")


def _found(text: str) -> list[str]:
    return [found.code for found in check_source(MODEL + text, "model.py") if found.code == "CKPT106"]


@pytest.mark.parametrize("loader", [LOADER, ANY])
def test_a_loader_leaves_the_mode_to_its_caller(loader):
    assert _found(loader) == ["CKPT106"]


@pytest.mark.parametrize(
    "text",
    [
        LOADER + TRAINED,
        LOADER + "\nmodel = load('weights.pt')\n",
        LOADER.replace("load(", "load_frozen("),
        LOADER.replace("load(", "teacher(").replace("model.teacher(", "model.load("),
        FREEZING,
        "\nclass Whole(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.net = Net()\n        self.net.eval()\n",
    ],
)
def test_what_may_stay_in_eval_mode_is_left_alone(text):
    assert _found(text) == []
