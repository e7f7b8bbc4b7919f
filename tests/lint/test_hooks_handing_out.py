"""What forward hooks of the layers in a region hand out, and draw, runs again with them."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

LAYER = """
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
{hooks}
    def forward(self, x):
        return x + self.mlp(x)
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.features = []
{hooks}
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant={reentrant})
        return x

def train(batches, optimizer):
    net = Net()
    for batch, targets in batches:
        loss = net(batch.requires_grad_()).sum() + {loss}
        loss.backward()
        net.features.clear()
        optimizer.step()
"""
NOISE = """
        self.mlp.register_forward_hook(self.noise)

    def noise(self, module, args, output):
        return output * random.random()
"""
GRAB = """
        for layer in self.layers:
            layer.mlp.register_forward_hook(self.grab)

    def grab(self, module, args, output):
        self.features.append(output)
"""
SUMS = [
    "sum(f.pow(2).mean() for f in net.features)",
    "sum(F.mse_loss(f, t) for f, t in zip(net.features, targets))",
    "torch.stack([f.norm() for f in net.features]).sum()",
]


def codes(layer: str = "", net: str = "", loss: str = "0", reentrant: bool = False) -> set[str]:
    text = LAYER.format(hooks=layer) + NET.format(hooks=net, loss=loss, reentrant=reentrant)
    return {finding.code for finding in check_source(text, "train.py")}


def test_a_hook_draws():
    assert "CKPT115" in codes(NOISE)


@pytest.mark.parametrize("register", ["register_forward_hook", "register_full_backward_hook"])
def test_another_one_is_removed(register):
    other = f"        self.other = nn.Linear(8, 8)\n        self.handle = self.other.{register}(print)\n"
    known = f"{other}        self.handle.remove()\n{NOISE}"
    assert "CKPT115" in codes(known)
    assert "CKPT115" not in codes(known.replace("self.handle.remove()", "find_handle(self).remove()"))


@pytest.mark.parametrize("loss", SUMS)
def test_a_hook_hands_out_what_a_loss_adds_up(loss):
    assert "CKPT113" in codes(net=GRAB, loss=loss, reentrant=True)


@pytest.mark.parametrize(
    "given",
    [
        {"net": GRAB, "loss": SUMS[0]},
        {"net": GRAB, "loss": "0", "reentrant": True},
        {"net": GRAB, "loss": "sum(f.detach().mean() for f in net.features)", "reentrant": True},
        {"net": GRAB, "loss": "sum(len(f) for f in net.features)", "reentrant": True},
        {"net": GRAB.replace("(output)", "(output.detach())"), "loss": SUMS[0], "reentrant": True},
        {"layer": NOISE.replace("random.random()", "0.5")},
        {"layer": NOISE.replace("self.mlp.", "self.other = nn.Linear(8, 8)\n        self.other.")},
        {"layer": NOISE.replace("(self.noise)", "(self.noise).remove()")},
    ],
)
def test_right_neighbours(given):
    assert codes(**given).isdisjoint({"CKPT113", "CKPT115"})
