"""Wrappers that hand `*args` on to a reentrant checkpoint: what their callers give decides, as a run shows."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

NET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Checkpointed(nn.Module):
    def __init__(self, module, use_reentrant=True):
        super().__init__()
        self.module, self.use_reentrant = module, use_reentrant

    def forward(self, FORWARD):
        return CALL

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, mask=None):
        return torch.tanh(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.embedding.weight.requires_grad = FROZEN
        self.layers = nn.ModuleList([Checkpointed(Block()) for _ in range(2)])
        self.head = nn.Linear(8, 2)

    def forward(self, ids):
        x = self.embedding(ids)
        mask = torch.ones(2, 3)
        for layer in self.layers:
            x = layer(GIVEN)
        return self.head(x)

net = Net()
net(torch.randint(10, (2, 3))).sum().backward()
learned = net.layers[0].module.linear.weight.grad is not None
"""
WRONG = [
    ("*args", "checkpoint(self.module, *args, use_reentrant=True)", "x"),
    ("*args, **kwargs", "checkpoint(self.module, *args, use_reentrant=self.use_reentrant, **kwargs)", "x"),
    ("*inputs", "checkpoint(self.module, *inputs, use_reentrant=self.use_reentrant)", "x, mask"),
    ("x, *rest", "checkpoint(self.module, x, *rest, use_reentrant=self.use_reentrant)", "x, mask"),
]
RIGHT = [
    ("*args", "checkpoint(self.module, *args, use_reentrant=False)", "x"),
    ("*args", "checkpoint(self.module, *args, use_reentrant=True)", "x + self.head.weight.sum()"),
    ("*args", "checkpoint(self.module, *[it.requires_grad_() for it in args], use_reentrant=True)", "x"),
]


def program(forward: str, call: str, given: str, frozen: bool = True) -> str:
    filled = {"FORWARD": forward, "CALL": call, "GIVEN": given, "FROZEN": str(not frozen)}
    text = NET
    for name, value in filled.items():
        text = text.replace(name, value)
    return text


def learns(text: str) -> bool:
    names: dict[str, bool] = {}
    exec(text, names)
    return names["learned"]


def codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize(("forward", "call", "given"), WRONG)
def test_the_layers_learn_nothing(forward, call, given):
    assert codes(program(forward, call, given)) == ["CKPT104"]
    assert not learns(program(forward, call, given))
    assert codes(program(forward, call, given, frozen=False)) == []
    assert learns(program(forward, call, given, frozen=False))


@pytest.mark.parametrize(("forward", "call", "given"), RIGHT)
def test_the_layers_learn(forward, call, given):
    assert codes(program(forward, call, given)) == []
    assert learns(program(forward, call, given))


def test_arguments_that_are_bound_anew_are_open():
    text = program("*args", "checkpoint(self.module, *args, use_reentrant=True)", "x")
    anew = text.replace("        return checkpoint(", "        args = prepare(args)\n        return checkpoint(")
    assert anew != text
    assert codes(anew) == []
