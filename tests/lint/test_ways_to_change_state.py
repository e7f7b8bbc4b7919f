"""State that a forward pass changes and computes with: whichever way it does, running it again gives something else."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import math
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

def average_(buffer, new):
    buffer.mul_(0.9).add_(0.1 * new)

class Part(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.fc = nn.Linear(d, d)
        self.register_buffer("stat", torch.zeros(d))
        self.register_buffer("n", torch.zeros(()))
        self.steps = 0
        self.memory = None
        self.queue = []
        self.decay = 0.9

    def forward(self, x):
        h = self.fc(x)
        {0}

    {1}

class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(8, d)
        self.part = Part(d)
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        x = self.inp(x)
        x = checkpoint(self.part, x, use_reentrant=False)
        return self.out(x)

def main(loader):
    net = Net().train()
    opt = torch.optim.Adam(net.parameters())
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
"""
WAYS = {
    "mul_add_": ("self.stat.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\n        return h - self.stat", "pass"),
    "lerp_": ("self.stat.lerp_(h.detach().mean(0), 0.1)\n        return h - self.stat", "pass"),
    "copy_": ("self.stat.copy_(0.9 * self.stat + 0.1 * h.detach().mean(0))\n        return h - self.stat", "pass"),
    "assign": ("self.stat = 0.9 * self.stat + 0.1 * h.detach().mean(0)\n        return h - self.stat", "pass"),
    "aug": ("self.stat += h.detach().mean(0)\n        return h - self.stat", "pass"),
    "data": (
        "self.stat.data = self.stat.data * 0.9 + h.detach().mean(0) * 0.1\n        return h / (1 + self.stat)",
        "pass",
    ),
    "data mul": ("self.stat.data.mul_(0.9).add_(0.1 * h.detach().mean(0))\n        return h * self.stat", "pass"),
    "slice": ("self.stat[:] = 0.9 * self.stat + 0.1 * h.detach().mean(0)\n        return h - self.stat", "pass"),
    "nograd": (
        "with torch.no_grad():\n            self.stat.mul_(0.9).add_(0.1 * h.mean(0))\n        return h - self.stat",
        "pass",
    ),
    "method": (
        "self.update(h)\n        return h - self.stat",
        "def update(self, h):\n        self.stat.mul_(0.9).add_(0.1 * h.detach().mean(0))",
    ),
    "method nograd": (
        "self.update(h)\n        return h - self.stat",
        "@torch.no_grad()\n    def update(self, h):\n        self.stat.copy_(self.stat * self.decay + h.mean(0) * (1 - self.decay))",
    ),
    "fn": ("average_(self.stat, h.detach().mean(0))\n        return h - self.stat", "pass"),
    "training": (
        "if self.training:\n            self.stat.mul_(0.9).add_(0.1 * h.detach().mean(0))\n        return h - self.stat",
        "pass",
    ),
    "counter": ("self.steps += 1\n        return h / self.steps", "pass"),
    "counter tensor": ("self.n += 1\n        return h / self.n", "pass"),
    "counter add_": ("self.n.add_(1)\n        return h * (1 - 0.9 ** self.n)", "pass"),
    "anneal": (
        "self.steps = self.steps + 1\n        tau = max(0.5, math.exp(-1e-4 * self.steps))\n        return h / tau",
        "pass",
    ),
    "gumbel": ("self.steps += 1\n        return F.softmax(h / (1.0 / self.steps), -1) * h", "pass"),
    "memory": (
        "if self.memory is not None:\n            h = h + self.memory\n        self.memory = h.detach()\n        return h",
        "pass",
    ),
    "memory cat": (
        "m = h if self.memory is None else torch.cat([self.memory, h])\n        self.memory = m.detach()\n        return h + m.mean(0)",
        "pass",
    ),
    "queue": ("self.queue.append(h.detach())\n        return h + torch.stack(self.queue).mean(0)", "pass"),
    "queue pop": (
        "prev = self.queue.pop() if self.queue else 0\n        self.queue.append(h.detach())\n        return h + prev",
        "pass",
    ),
    "momentum var": (
        "m = 0.99\n        self.stat = m * self.stat.detach() + (1 - m) * h.mean(0).detach()\n        return (h - self.stat).tanh()",
        "pass",
    ),
    "setattr": ("setattr(self, 'steps', self.steps + 1)\n        return h / self.steps", "pass"),
    "running max": (
        "self.stat = torch.maximum(self.stat, h.detach().amax(0))\n        return h / (self.stat + 1)",
        "pass",
    ),
    "spectral u": (
        "v = F.normalize(self.fc.weight.t() @ self.stat, dim=0)\n        u = F.normalize(self.fc.weight @ v, dim=0)\n        self.stat.copy_(u.detach())\n        return h / (u @ self.fc.weight @ v)",
        "pass",
    ),
    "buffers idx": (
        "i = int(self.n) % 16\n        self.stat[i] = h.detach().mean()\n        self.n += 1\n        return h + self.stat",
        "pass",
    ),
    "codebook": (
        "idx = h.argmax(-1)\n        onehot = F.one_hot(idx, 16).float()\n        self.stat.data.mul_(0.99).add_(onehot.sum(0), alpha=0.01)\n        return h + onehot @ torch.diag(self.stat)",
        "pass",
    ),
    "parent": (
        "self.track(h)\n        return h - self.stat",
        "def track(self, h):\n        d = self.decay\n        new = h.detach().mean(0)\n        self.stat.data.copy_(d * self.stat + (1 - d) * new)",
    ),
}
#: Ways in which both runs compute the same.
SAME = {
    "made anew": "self.queue = []\n        self.queue.append(h)\n        return torch.stack(self.queue).mean(0)",
    "emptied": "self.queue.clear()\n        self.queue.append(h)\n        return torch.stack(self.queue).mean(0)",
    "only kept": "self.queue.append(h.detach())\n        return h",
    "a name for another one": "stat = h.detach().mean(0)\n        stat.mul_(0.9)\n        return h - self.stat",
    "overwritten": "self.stat.data = h.detach().mean(0)\n        return h - self.stat",
    "overwritten by a name": "stat = self.stat\n        stat.copy_(h.detach().mean(0))\n        return h - stat",
    "at the same place": "self.stat[0] = h.detach().mean()\n        return h + self.stat",
    "a copy in a helper": "average_(self.stat.clone(), h.detach().mean(0))\n        return h - self.stat",
}


def codes(body: str, method: str = "pass") -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", body).replace("{1}", method))}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_another_state_the_second_time(way):
    assert "CKPT107" in codes(*WAYS[way])


@pytest.mark.parametrize("way", SAME)
def test_it_is_the_same(way):
    assert "CKPT107" not in codes(SAME[way])
