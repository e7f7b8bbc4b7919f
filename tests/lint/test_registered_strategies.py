"""Ways to run a block that a name of the command line takes out of a registry which the program fills."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import sys
import numpy as np
import torch
import torch.nn as nn
from functools import partial
from torch.utils.checkpoint import checkpoint
"""
FUNCTIONS = """
@register("plain")
def plain(fn, *args):
    return fn(*args)
@register("lean")
def lean(fn, *args):
    return checkpoint(fn, *args, use_reentrant=False)
"""
DECORATOR = """
REG = {}
def register(name):
    def add(fn):
        REG[name] = fn
        return fn
    return add
"""
#: The registry, and what takes a strategy out of it.
FILLED = {
    "a decorator with a name": (DECORATOR + FUNCTIONS, "REG[kind]"),
    "a decorator that forbids two": (
        DECORATOR.replace(
            "        REG[name]", "        if name in REG:\n            raise KeyError(name)\n        REG[name]"
        )
        + FUNCTIONS,
        "REG[kind]",
    ),
    "a dict that is called": (DECORATOR.replace("{}", "dict()") + FUNCTIONS, "REG.get(kind, plain)"),
    "the name of the function": (
        "REG = {}\ndef register(fn):\n    REG[fn.__name__] = fn\n    return fn\n"
        + FUNCTIONS.replace('("plain")', "").replace('("lean")', ""),
        "REG[kind]",
    ),
    "a partial beside it": (
        DECORATOR + FUNCTIONS + 'register("all")(partial(checkpoint, use_reentrant=False))\n',
        "REG[kind]",
    ),
    "an object": (
        """
class Registry:
    def __init__(self):
        self._held = {}
    def register(self, name):
        def add(fn):
            self._held[name] = fn
            return fn
        return add
    def get(self, name):
        return self._held[name]
REG = Registry()
register = REG.register
"""
        + FUNCTIONS,
        "REG.get(kind)",
    ),
    "update": (
        "REG = {}\nREG.update(plain=lambda fn, *a: fn(*a))\n"
        'REG.update({"lean": lambda fn, *a: checkpoint(fn, *a, use_reentrant=False)})\n',
        "REG[kind]",
    ),
    "classes": (
        DECORATOR
        + """
@register("plain")
class Plain:
    def __call__(self, fn, *args):
        return fn(*args)
@register("lean")
class Lean:
    def __call__(self, fn, *args):
        return checkpoint(fn, *args, use_reentrant=False)
""",
        "REG[kind]()",
    ),
}
MODEL = """
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)
    def forward(self, x):
        return x + self.linear(x) * {draw}
class Encoder(nn.Module):
    def __init__(self, kind, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))
        self.run = {taken}
    def forward(self, x):
        for block in self.blocks:
            x = self.run(block, x)
        return x
model = Encoder(sys.argv[1])
model(torch.randn(2, 8)).sum().backward()
"""


def codes(filled, draw):
    registry, taken = filled
    return {finding.code for finding in check_source(HEAD + registry + MODEL.format(taken=taken, draw=draw))}


@pytest.mark.parametrize("filled", FILLED.values(), ids=FILLED)
def test_a_draw_in_what_a_registered_strategy_checkpoints_is_found(filled):
    assert codes(filled, "np.random.randint(1, 5)") == {"CKPT115"}


@pytest.mark.parametrize("filled", FILLED.values(), ids=FILLED)
def test_a_draw_of_torch_in_it_is_right(filled):
    assert codes(filled, "torch.rand(1)") == set()


def test_strategies_of_which_none_checkpoints_are_right():
    registry = DECORATOR + FUNCTIONS.replace("checkpoint(fn, *args, use_reentrant=False)", "fn(*args)")
    assert codes((registry, "REG[kind]"), "np.random.randint(1, 5)") == set()


def test_a_registry_may_hold_what_other_files_put_there():
    """Each of the blocks that this file registers has a BatchNorm, and another one may have none."""
    registry = (
        DECORATOR
        + """
@register("a")
class A(nn.BatchNorm1d): ...
@register("b")
class B(nn.BatchNorm1d): ...
"""
    )
    model = MODEL.format(draw="1", taken="partial(checkpoint, use_reentrant=False)")
    script = HEAD + registry + model.replace("nn.Linear(d, d)", "REG[kind](d)").replace("Block(d)", "Block(kind, d)")
    script = script.replace("def __init__(self, d):", "def __init__(self, kind, d):")
    assert not check_source(script)
    assert {finding.code for finding in check_source(script, notes=True)} <= {"CKPT106"}
