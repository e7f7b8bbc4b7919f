"""Optimizer steps in gradient hooks: modules that a wrapper makes reentrant, and what belongs to one step of training."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self, d=8, loops=4):
        super().__init__()
        self.first, self.loops = nn.Linear(d, d), loops
        self.cell = nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, d))
        self.shared = checkpoint_wrapper(nn.Sequential(nn.Linear(d, d), nn.Tanh()), checkpoint_impl=CheckpointImpl.{kind})
        self.blocks = nn.ModuleList(
            checkpoint_wrapper(nn.Linear(d, d), checkpoint_impl=CheckpointImpl.{kind}) for _ in range(4)
        )
    def forward(self, x):
        h = self.first(x)
{forward}
class Lomo:
    def __init__(self, net, lr=0.1):
        self.lr = lr
        self.handles = [p.register_post_accumulate_grad_hook(self.{hook}) for p in net.parameters()]
    @torch.no_grad()
    def apply(self, p):
        p.add_(p.grad.clamp(-1, 1), alpha=-self.lr)
        p.grad = None
    def watch(self, p):
        print(p.grad.norm())
def train(loader):
    net = Net()
    Lomo(net)
    for epoch in range(3):
        for x in loader:
{step}
train(torch.utils.data.DataLoader(torch.load("data.pt")))
"""
LOOP = "        for _ in range(self.loops):\n            h = self.shared(h)\n        return h"
STEP = "            net(x).sum().backward()"
SEVERAL = {
    "a loop": LOOP,
    "a loop that adds": LOOP.replace("h = self", "h = h + self"),
    "a while": "        n = 0\n        while n < 4:\n            h = self.shared(h)\n            n += 1\n        return h",
    "two calls": "        return self.shared(self.shared(h))",
    "two statements": "        h = self.shared(h)\n        return self.shared(h + x)",
}
ONCE = {
    "one call": {"forward": "        return self.shared(h)"},
    "one call of two": {
        "forward": "        if self.training:\n            return self.shared(h)\n        return self.shared(x)"
    },
    "each of a list": {"forward": "        for block in self.blocks:\n            h = block(h)\n        return h"},
    "the other variant": {"forward": LOOP, "kind": "NO_REENTRANT"},
    "a hook that looks": {"forward": LOOP, "hook": "watch"},
    "a checkpoint in the loop over steps": {
        "forward": "        return h",
        "step": "            checkpoint(net.cell, net.first(x), use_reentrant=True).sum().backward()",
    },
    "one checkpoint of two": {
        "forward": """        if len(x) > 4:
            return checkpoint(self.cell, h, use_reentrant=True)
        return checkpoint(self.cell, h + 1, use_reentrant=True)"""
    },
}


def codes(forward, kind="REENTRANT", hook="apply", step=STEP):
    script = SCRIPT.format(forward=forward, kind=kind, hook=hook, step=step)
    return [finding.code for finding in check_source(script, select=lambda code: code == "CKPT135")]


@pytest.mark.parametrize("forward", SEVERAL.values(), ids=SEVERAL)
def test_a_wrapped_module_that_one_step_calls_again_is_found(forward):
    assert codes(forward) == ["CKPT135"]


@pytest.mark.parametrize("parts", ONCE.values(), ids=ONCE)
def test_a_module_that_a_step_runs_once_is_right(parts):
    assert codes(**parts) == []
