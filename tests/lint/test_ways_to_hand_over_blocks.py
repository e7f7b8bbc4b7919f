"""Blocks that checkpoint a part of themselves, checkpointed whole by functions that are bound to them early."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
from functools import partial
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.out = nn.Linear(d, d)

    def forward(self, x, mask=None):
        return self.out(x + INNER)

class Net(nn.Module):
    def __init__(self, d=16, depth=4):
        super().__init__()
        self.stem, self.head = nn.Linear(d, d), nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
        self.layers = nn.ModuleList([Layer(d) for _ in range(depth)])

    def forward(self, x, mask):
        x = self.stem(x)
        for i, layer in enumerate(self.layers):
            OUTER
        return x
"""
TWICE, ONCE = "checkpoint(self.mlp, self.norm(x), use_reentrant=False)", "self.mlp(self.norm(x))"
WAYS = {
    "the name itself": "x = checkpoint(lambda y, layer=layer: layer(y, mask), x, use_reentrant=False)",
    "another name": "x = checkpoint(lambda y, block=layer: block(y, mask), x, use_reentrant=False)",
    "kept": "run = lambda y, block=layer: block(y)\n            x = checkpoint(run, x, use_reentrant=False)",
    "def": (
        "def run(y, block=layer):\n                return block(y, mask)\n"
        "            x = checkpoint(run, x, use_reentrant=False)"
    ),
    "number": "x = checkpoint(lambda y, i=i: self.layers[i](y), x, use_reentrant=False)",
    "partial": "x = checkpoint(partial(layer, mask=mask), x, use_reentrant=False)",
    "keyword only": "x = checkpoint(lambda y, *, block=layer: block(y), x, use_reentrant=False)",
}


def codes(script):
    return [finding.code for finding in check_source(script)]


@pytest.mark.parametrize("outer", WAYS.values(), ids=WAYS)
def test_a_part_that_runs_three_times_is_found(outer):
    assert codes(SCRIPT.replace("INNER", TWICE).replace("OUTER", outer)) == ["CKPT402"]


@pytest.mark.parametrize("outer", WAYS.values(), ids=WAYS)
def test_blocks_that_are_checkpointed_once_are_right(outer):
    assert codes(SCRIPT.replace("INNER", ONCE).replace("OUTER", outer)) == []


def test_what_another_module_is_given_for_is_right():
    outer = "x = layer(checkpoint(lambda y, block=layer: block(y), x, self.head, use_reentrant=False))"
    assert codes(SCRIPT.replace("INNER", TWICE).replace("OUTER", outer)) == []
