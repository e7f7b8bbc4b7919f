"""Hooks that a loop over a model's modules registers on those of some names or classes."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.rnn, self.mlp = nn.GRU(d, d, batch_first=True), nn.Linear(d, d)

    def forward(self, x):
        return x + self.mlp(x + self.rnn(x)[0])

class Net(nn.Module):
    def __init__(self, d, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(4, d), nn.Linear(d, 2)
        self.layers = nn.ModuleList([Layer(d) for _ in range(depth)])

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return self.out(x)

class Tap:
    def __init__(self, net, names):
        self.kept = {}
        for name, module in net.named_modules():
            if TEST:
                module.register_forward_hook(self.keep(name))

    def keep(self, name):
        def hook(module, args, output):
            self.kept[name] = WHAT
        return hook

def train(loader, optimizer):
    net = Net(8, 3)
    tap = Tap(net, ["layers.1.mlp", "layers.2.mlp"])
    for x, y, wanted in loader:
        loss = F.cross_entropy(net(x), y)
        USED
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
TESTS = (
    'name.endswith("mlp")',
    'name.startswith("layers.") and name.endswith(".mlp")',
    "name in names",
    'name == "layers.2.mlp"',
    'name.split(".")[-1] == "mlp"',
    "isinstance(module, Layer)",
)
OTHER_TESTS = (
    'name == "out"',
    'name.endswith("inp")',
    'name == "mlp"',
    "isinstance(module, nn.Conv2d)",
    "chosen(name)",
)
SUM = "loss = loss + sum(value.pow(2).mean() for value in tap.kept.values())"
USES = (
    SUM,
    "for name, value in tap.kept.items(): loss += F.mse_loss(value, wanted[name])",
    "loss = loss + sum(F.mse_loss(its, value) for its, value in zip(wanted, list(tap.kept.values())))",
    'loss = loss + tap.kept["layers.1.mlp"].abs().mean()',
)
SHOWN = "print({name: value.norm() for name, value in tap.kept.items()})"


def _codes(test: str, used: str = SUM, what: str = "output") -> list[str]:
    text = SCRIPT.replace("TEST", test).replace("USED", used).replace("WHAT", what)
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.parametrize("test", TESTS)
def test_hooks_on_modules_in_a_reentrant_region(test: str) -> None:
    assert _codes(test) == ["CKPT113"]


@pytest.mark.parametrize("used", USES)
@pytest.mark.parametrize("what", ["output", "output[0] if isinstance(output, tuple) else output", "output.float()"])
def test_what_a_loss_takes_of_them(used: str, what: str) -> None:
    assert _codes(TESTS[0], used, what) == ["CKPT113"]


@pytest.mark.parametrize("test", OTHER_TESTS)
def test_hooks_on_other_modules_or_on_none(test: str) -> None:
    assert _codes(test) == []


def test_what_is_shown_only_or_kept_without_a_gradient() -> None:
    assert _codes(TESTS[0], SHOWN) == []
    assert _codes(TESTS[0], SUM, "output.detach()") == []


def test_an_entry_of_a_module_outside_of_the_region() -> None:
    both = 'name in ("out", "layers.1.mlp")'
    assert _codes(both, 'loss = loss + tap.kept["out"].pow(2).mean()') == []
    assert _codes(both, SUM) == ["CKPT113"]
