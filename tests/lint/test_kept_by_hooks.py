"""Outputs of modules that forward hooks keep in dicts and attributes, and what a program does with them."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))

class Net(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(4, d), nn.Linear(d, 2)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.out(x)

features = {}

def keep_as(name):
    def hook(module, args, output):
        features[name] = output
    return hook

class Tap:
    def __init__(self, module):
        self.handle = module.register_forward_hook(self.keep)

    def keep(self, module, args, output):
        self.output = output

    def close(self):
        self.handle.remove()

def train(loader, optimizer):
    net = Net(8, 3)
    REGISTERED
    for x, y, wanted in loader:
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        USED
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    BEHIND
"""
IN_DICT = 'net.blocks[1].up.register_forward_hook(keep_as("mid"))'
IN_CLOSURE = """kept = {}
    def hook(module, args, output):
        kept["mid"] = output
    handle = net.blocks[1].down.register_forward_hook(hook)"""
IN_ATTRIBUTES = "taps = [Tap(block.up) for block in net.blocks]"


def _codes(registered: str, used: str, behind: str = "pass") -> list[str]:
    text = SCRIPT.replace("REGISTERED", registered).replace("USED", used).replace("BEHIND", behind)
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.parametrize(
    ("registered", "used", "behind"),
    [
        (IN_DICT, 'loss = loss + F.mse_loss(features["mid"], wanted)', "pass"),
        (IN_DICT, 'extra = features["mid"].abs().mean(); loss += 0.1 * extra', "pass"),
        (IN_CLOSURE, 'loss = loss + 0.1 * kept["mid"].pow(2).mean()', "handle.remove()"),
        (IN_ATTRIBUTES, "for tap, its in zip(taps, wanted): loss = loss + F.mse_loss(tap.output, its)", "pass"),
        (IN_ATTRIBUTES, "loss = loss + sum(tap.output.square().mean() for tap in taps)", "pass"),
    ],
)
def test_a_loss_of_what_a_hook_keeps(registered: str, used: str, behind: str) -> None:
    assert _codes(registered, used, behind) == ["CKPT113"]


@pytest.mark.parametrize(
    ("registered", "used"),
    [
        (IN_DICT, 'print(features["mid"].norm())'),
        (IN_DICT, 'drift = F.mse_loss(features["mid"].detach(), wanted); print(drift)'),
        (IN_DICT, 'with torch.no_grad(): print(F.mse_loss(features["mid"], wanted))'),
        (IN_DICT, 'loss = loss + F.mse_loss(features["other"], wanted)'),
        (IN_CLOSURE + "; handle.remove()", 'loss = loss + kept["mid"].mean()'),
        ("teacher = Net(8, 3); teacher.blocks[1].up.register_forward_hook(keep_as('mid'))",
         'with torch.no_grad(): teacher(x)\n        loss = loss + F.mse_loss(logits, features["mid"])'),
        ("taps = [Tap(net.out)]", "loss = loss + taps[0].output.mean()"),
    ],
)  # fmt: skip
def test_what_is_only_shown_or_comes_from_elsewhere(registered: str, used: str) -> None:
    assert _codes(registered, used) == []
