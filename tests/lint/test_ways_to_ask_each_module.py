"""Check functions that ask in a loop, or are kept in a class: which modules go into wrappers."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import os
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Mlp(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mlp, self.norm = Mlp(d), nn.LayerNorm(d)

    def forward(self, x):
        return self.norm(x + self.mlp(x))

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.layers = nn.Sequential(*(Layer(d) for _ in range(3)))

    def forward(self, x):
        return self.layers(x)

BOTH, ONE = (Layer, Mlp), (Layer,)

def always(module):
    return True

def is_layer(module):
    return isinstance(module, Layer)

{0}
"""
LOOP = """
def check(module):
    for kind in {0}:
        if isinstance(module, kind):
            return {1}
    return {2}

apply_activation_checkpointing(Net(), check_fn=check)
"""
SETUP = """
class Setup:
    check = staticmethod({0})

    def wrap(self, model):
        apply_activation_checkpointing(model, check_fn={1})

Setup().wrap(Net())
"""
WAYS = {
    "in a loop": (LOOP.format("BOTH", True, False), "CKPT402"),
    "in a loop over a display": (LOOP.format("(Layer, Mlp)", True, False), "CKPT402"),
    "static": (SETUP.format("always", "self.check"), "CKPT404"),
    "static of the class": (SETUP.format("always", "Setup.check"), "CKPT404"),
    "static lambda": (SETUP.format("lambda module: True", "self.check"), "CKPT404"),
}
RIGHT = {
    "one in a loop": LOOP.format("ONE", True, False),
    "one in a display": LOOP.format("(Layer,)", True, False),
    "neither": LOOP.format("BOTH", False, False),
    "one of two": "apply_activation_checkpointing(Net(), check_fn=lambda m: isinstance(m, Layer if os.cpu_count() else Mlp))",
    "static": SETUP.format("is_layer", "self.check"),
    "static of the class": SETUP.format("is_layer", "Setup.check"),
}


def codes(part):
    return [finding.code for finding in check_source(SCRIPT.format(part))]


@pytest.mark.parametrize(("part", "code"), WAYS.values(), ids=WAYS)
def test_too_much_is_wrapped(part, code):
    assert codes(part) == [code]


@pytest.mark.parametrize("part", RIGHT.values(), ids=RIGHT)
def test_blocks_alone_are_right(part):
    assert codes(part) == []
