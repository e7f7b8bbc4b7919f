"""Results of checkpoints that a helper returns to callers who drop them, and wrappers that `map` collects for nobody."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_HEAD = """
from collections import deque
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())

def run(fn, *args):
    return checkpoint(fn, *args, use_reentrant=False)

def run_named(fn, x):
    out = checkpoint(fn, x, use_reentrant=False)
    return out

def wrap(layer):
    layer = checkpoint_wrapper(layer)
    return layer

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.last, self.outs = Block(), []

    def keep(self, fn, x):
        out = checkpoint(fn, x, use_reentrant=False)
        self.outs.append(out)
        return out

"""
_FORWARD = "    def forward(self, x):\n        for layer in self.layers:\n            {}\n        return {}\n"
WRONG = {
    "of a helper": _FORWARD.format("run(layer, x)", "x"),
    "of a helper that names it": _FORWARD.format("y = run_named(layer, x)", "x"),
    "by one of two callers": _FORWARD.format("run(layer, x)", "run(self.last, x)"),
    "a list of map": "def shard(model):\n    list(map(checkpoint_wrapper, model.layers))\n    return model\n",
    "a tuple of a comprehension": "def shard(model):\n    tuple(checkpoint_wrapper(it) for it in model.layers)\n",
    "map of a helper": "def shard(model):\n    done = list(map(wrap, model.layers))\n    return model\n",
    "map of a lambda": "def shard(model):\n    _ = [*map(lambda it: checkpoint_wrapper(it), model.layers)]\n",
    "a deque": "def shard(model):\n    deque(map(checkpoint_wrapper, model.layers), maxlen=0)\n",
    "a loop over map": "def shard(model):\n    for _ in map(checkpoint_wrapper, model.layers):\n        pass\n",
    "a wrapper by one of two callers": """
def shard(model):
    model.head = wrap(model.head)
    for layer in model.layers:
        wrap(layer)
""",
}
RIGHT = {
    "used": _FORWARD.format("x = run(layer, x)", "run_named(self.last, x)"),
    "kept by the helper": _FORWARD.format("self.keep(layer, x)", "sum(self.outs)"),
    "without gradients": _FORWARD.format("with torch.no_grad():\n                run(layer, x)", "run(self.last, x)"),
    "a warm-up": "def warm_up(net, x):\n    for layer in net.layers:\n        run(layer, x)\n",
    "a list that is put back": "def shard(model):\n    model.layers = nn.ModuleList(list(map(wrap, model.layers)))\n",
    "a list that is returned": "def shard(model):\n    return list(map(checkpoint_wrapper, model.layers))\n",
    "a loop that puts it back": """
def shard(model):
    for index, layer in enumerate(map(checkpoint_wrapper, model.layers)):
        model.layers[index] = layer
""",
    "a method named like a container": "def shard(model, keep):\n    keep.set(checkpoint_wrapper(model.layer))\n",
    "a lambda that others call": "def shard(model):\n    wrapped = lambda it: checkpoint_wrapper(it)\n    return wrapped\n",
}


def _found(body: str) -> list[tuple[str, int]]:
    text = _HEAD + textwrap.dedent(body) if body.startswith("\n") else _HEAD + body
    return [(finding.code, finding.span.line - len(_HEAD.splitlines())) for finding in check_source(text, "train.py")]


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_it_is_found(body):
    assert {code for code, _ in _found(body)} == {"CKPT209"}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_its_neighbour_is_not(body):
    assert _found(body) == []


def test_where_others_use_it_the_caller_that_drops_it_is_shown():
    assert _found(WRONG["by one of two callers"]) == [("CKPT209", 3)]
    assert _found(WRONG["a wrapper by one of two callers"]) == [("CKPT209", 5)]


def test_a_function_that_may_wrap_in_place_instead_is_silent():
    code = """
from enum import Enum
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

def each_block(module):
    for name, block in module.blocks.named_children():
        module.blocks.register_module(name, checkpoint_wrapper(block))
    return module

def the_whole(module):
    return checkpoint_wrapper(module)

def apply(module, kind="full"):
    if kind == Kind.FULL:
        module = each_block(module)
    else:
        module = the_whole(module)
    return module

class Kind(str, Enum):
    FULL = "full"

def train(model, kind):
    apply(model, kind)
    return model

def wrapped(model):
    return apply(model, "whole")
"""
    assert not check_source(code)
