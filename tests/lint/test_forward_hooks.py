"""Hooks on modules run with them, in a recomputation too: runs decide what they change."""

from __future__ import annotations

import pytest
import torch
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def follow(module: "Quantizer", args):
    if not module.training:
        return
    with torch.no_grad():
        module.total.mul_(0.5).add_(args[0].mean(0))
        module.codes.copy_(module.total * 2)

def count(module, args, out):
    module.seen += len(out)

def noisy(module, args, out):
    return out * (1 + random.random())

class Range:
    def __init__(self, momentum):
        self.momentum = momentum

    def __call__(self, module, args, out):
        module.codes.lerp_(out.detach().mean(0), self.momentum)

class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.seen = 0
        self.register_buffer("codes", torch.ones(3))
        self.register_buffer("total", torch.ones(3))
        {registered}

    def _update(self, module, args, out):
        self.codes.mul_(0.9).add_(out.detach().mean(0))

    def forward(self, x):
        return torch.tanh(self.lin(x) * self.codes.clone())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.quantizer, self.head = nn.Linear(3, 3), Quantizer(), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(checkpoint({region}, self.stem(x), use_reentrant=False))

torch.manual_seed(0)
net = Net()
{done}
net(torch.ones(2, 3)).pow(2).sum().backward()
"""
WRONG = (
    ("self.register_forward_pre_hook(follow)", "", "CKPT107"),
    ("self.register_forward_hook(self._update)", "", "CKPT107"),
    ("self.register_forward_hook(Range(0.5))", "", "CKPT107"),
    ("", "net.quantizer.register_forward_pre_hook(follow)", "CKPT107"),
    ("self.lin.register_forward_hook(noisy)", "", "CKPT115"),
)
RIGHT = (
    ("", ""),
    ("self.register_forward_hook(count)", ""),
    ("handle = self.register_forward_hook(self._update)\n        handle.remove()", ""),
    ("", "net.register_forward_hook(noisy)"),
    ("self.register_forward_pre_hook(follow)", "net.eval()"),
)


@pytest.mark.parametrize(("registered", "done", "code"), WRONG)
def test_hooks_in_the_region(registered: str, done: str, code: str) -> None:
    """What they change or draw makes the recomputation another one."""
    text = _script(registered, done)
    assert {found.code for found in check_source(text, "train.py")} == {code}
    assert not torch.equal(_gradient(text), _gradient(_plain(text)))


@pytest.mark.parametrize(("registered", "done"), RIGHT)
def test_hooks_that_do_no_harm(registered: str, done: str) -> None:
    """They only count, are gone, belong to a module outside, or do nothing in this mode."""
    text = _script(registered, done)
    assert not {found.code for found in check_source(text, "train.py")} & {"CKPT107", "CKPT115"}
    if "random" not in done and "noisy" not in done:
        assert torch.equal(_gradient(text), _gradient(_plain(text)))


def _script(registered: str, done: str) -> str:
    return SCRIPT.format(registered=registered, done=done, region="self.quantizer")


def _plain(text: str) -> str:
    return text.replace("checkpoint(self.quantizer, self.stem(x), use_reentrant=False)", "self.quantizer(self.stem(x))")


def _gradient(text: str) -> torch.Tensor:
    names: dict[str, torch.nn.Module] = {}
    exec(f"import random\nrandom.seed(0)\n{text}", names)
    gradient = names["net"].get_parameter("stem.weight").grad
    assert gradient is not None
    return gradient
