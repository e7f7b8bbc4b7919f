"""`create_custom_forward(block)`: what a factory makes of a module is the module, where it hands everything on."""

from __future__ import annotations

import pytest
from hf_ckpt.lint import check_source

NET = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

{factory}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        x += y
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def custom(self, module):
        def custom_forward(*inputs):
            return module(*inputs)
        return custom_forward

    @staticmethod
    def static(module):
        def custom_forward(*inputs):
            return module(*inputs)
        return custom_forward

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint({called}, x, use_reentrant=False)
        return x
"""
FACTORY = """
def create_custom_forward(module):
    def custom_forward(*inputs, **kwargs):
        return module(*inputs, **kwargs)
    return custom_forward
"""


def codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text)]


@pytest.mark.parametrize("called", ["create_custom_forward(block)", "self.custom(block)", "self.static(block)"])
def test_what_the_factory_makes_is_the_module(called: str) -> None:
    assert codes(NET.format(factory=FACTORY, called=called)) == ["CKPT117"]


@pytest.mark.parametrize(
    "inner",
    [
        "return module(inputs[0].clone())",
        "return module(*inputs, True)",
        "return module(*[it.clone() for it in inputs])",
        "module = other\n        return module(*inputs)",
    ],
)
def test_one_that_calls_it_otherwise_is_not(inner: str) -> None:
    factory = f"other = nn.Identity()\ndef create(module):\n    def run(*inputs):\n        {inner}\n    return run"
    assert codes(NET.format(factory=factory, called="create(block)")) == []


LOOP = """
from torch.utils.checkpoint import checkpoint

{factory}

def forward(layers, x, mask):
    for layer in layers:
        {made}
        x = checkpoint(run, x, use_reentrant=False)
    return x
"""


def test_the_factory_binds_the_module_early() -> None:
    assert codes(LOOP.format(factory=FACTORY, made="run = create_custom_forward(layer)")) == []


@pytest.mark.parametrize(
    "made",
    [
        "def run(*inputs): return layer(*inputs)",
        "def late(h): return layer(h, mask)\n        run = create_custom_forward(late)",
    ],
)
def test_a_closure_of_the_loop_reads_it_late(made: str) -> None:
    assert codes(LOOP.format(factory=FACTORY, made=made)) == ["CKPT105"]
