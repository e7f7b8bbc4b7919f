"""Embeddings that a loop over names freezes, by texts that stand in a variable, an argument or a pattern."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_NET = """
import re
import sys
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
    def forward(self, x):
        return x + self.down(self.up(x).relu())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(100, 8), nn.Linear(8, 100)
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)

class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 8)

def train(model, loader, optimizer):
    for ids, labels in loader:
        F.cross_entropy(model(ids).flatten(0, 1), labels.flatten()).backward()
        optimizer.step()

model = Net()
"""
_LOOP = "for name, parameter in model.named_parameters():\n    {}\n"
_FREEZE = _LOOP.format("if {}:\n        parameter.requires_grad = False")
_HELPER = """
def freeze(model, words=("embed",)):
    for name, parameter in model.named_parameters():
        if any(name.startswith(word) for word in words):
            parameter.requires_grad = False

"""
_ANY = "any(word in name for word in WORDS)"
WRONG = {
    "in a tuple": 'WORDS = ("embed", "position")\n' + _FREEZE.format(_ANY),
    "in a list of what trains": 'WORDS = ["blocks", "head"]\n' + _LOOP.format(f"parameter.requires_grad = {_ANY}"),
    "a pattern": _FREEZE.format('re.match(r"embed\\.", name)'),
    "an argument": _HELPER + 'freeze(model, ["embed"])\n',
    "a keyword": _HELPER + 'WORDS = ["embed"]\nfreeze(model, words=WORDS)\n',
    "a default": _HELPER + "freeze(model)\n",
}
RIGHT = {
    "others in a tuple": 'WORDS = ("head", "position")\n' + _FREEZE.format(_ANY),
    "all train": 'WORDS = ["blocks", "head", "embed"]\n' + _LOOP.format(f"parameter.requires_grad = {_ANY}"),
    "a list that grows": 'WORDS = ["head"]\nWORDS.extend(sys.argv[1:])\n' + _FREEZE.format(_ANY),
    "another pattern": _FREEZE.format('re.match(r"head\\.", name)'),
    "arguments of the command line": _HELPER + "freeze(model, sys.argv[1:])\n",
    "those of another model": _HELPER + 'freeze(model, ["head"])\nfreeze(Other())\n',
}


def _codes(script: str) -> set[str]:
    return {finding.code for finding in check_source(_NET + script, "train.py")}


@pytest.mark.parametrize("script", WRONG.values(), ids=WRONG)
def test_frozen_embeddings_are_known(script):
    assert _codes(script) == {"CKPT104"}


@pytest.mark.parametrize("script", RIGHT.values(), ids=RIGHT)
def test_those_that_train_are_not_taken_for_frozen(script):
    assert _codes(script) == set()
