"""What a method of a layer gives to a reentrant region, which puts it into a list that a loss adds up."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.v = nn.Linear(8, 8), nn.Linear(8, 8)

    def attention(self, x):
        weights = (self.q(x) @ x.transpose(-1, -2)).softmax(-1)
        return {given}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        h, maps = self.pre(x), []

        def make(layer):
            def run(h):
                weights = layer.attention(h)
                maps.append(weights)
                return h + weights @ layer.v(h)
            return run

        for layer in self.layers:
            h = checkpoint(make(layer), h, use_reentrant={reentrant})
        return h, maps

def entropy(weights):
    return -(weights * weights.log()).sum(-1).mean()

def train(loader, optimizer):
    net = Net()
    for x in loader:
        y, maps = net(x)
        loss = y.mean()
        {used}
        loss.backward()
        optimizer.step()
"""
ADDED = (
    "loss = loss + sum(entropy(it) for it in maps)",
    "loss = loss + 0.1 * sum(map(entropy, maps))",
    "loss += sum(map(lambda it: it.mean(), maps))",
)


def _codes(given: str, used: str, reentrant: bool = True) -> list[str]:
    text = SCRIPT.format(given=given, used=used, reentrant=reentrant)
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.parametrize("used", ADDED)
def test_a_loss_adds_up_what_a_method_gives(used: str) -> None:
    assert _codes("weights", used) == ["CKPT113"]
    assert _codes("weights", used, reentrant=False) == []


@pytest.mark.parametrize("used", ADDED)
def test_a_method_that_detaches_gives_no_gradient(used: str) -> None:
    assert _codes("weights.detach()", used) == []


@pytest.mark.parametrize("used", ["print(sum(map(entropy, maps)))", "shown = sum(map(len, maps))", "maps.clear()"])
def test_what_no_loss_gets_may_leave(used: str) -> None:
    assert _codes("weights", used) == []
