"""Random seeds inside of a region, fixed in the ways that scripts fix them, and those that change from step to step."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


def region(module, x, seed):
    torch.manual_seed(seed)
    return module(x)


STEP = 0


class Cfg:
    def __init__(self):
        self.seed = 1


cfg = Cfg()


class Net(nn.Module):
    k = 0

    def __init__(self, seed=3):
        super().__init__()
        self.seq = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
        INIT

    def forward(self, x, step=0):
        BODY


net = Net()
for step in range(3):
    net(torch.randn(2, 8), step).sum().backward()
    AFTER
"""
GIVEN = "return checkpoint(region, self.seq, x, {}, use_reentrant=False)"
INSIDE = """def run(h):
            torch.manual_seed({})
            return self.seq(h)
        return checkpoint(run, x, use_reentrant=False)"""
BOUND = INSIDE.replace("run(h)", "run(h, seed={})", 1).replace("manual_seed({})", "manual_seed(seed)")
#: What the constructor sets, what the forward pass does, and what is done after each step.
FIXED = {
    "an attribute is given": ("self.s = 3", GIVEN.format("self.s"), "pass"),
    "a sum with one is given": ("self.s = 3", GIVEN.format("self.s + 1"), "pass"),
    "an argument of the constructor": ("self.s = seed", GIVEN.format("self.s"), "pass"),
    "by keyword": ("pass", GIVEN.format("seed=5"), "pass"),
    "by name": ("pass", f"seed = 5\n        {GIVEN.format('seed')}", "pass"),
    "bound early": ("pass", BOUND.format(4), "pass"),
    "a partial": (
        "pass",
        "from functools import partial\n        run = partial(region, self.seq, seed=4)\n"
        "        return checkpoint(run, x, use_reentrant=False)",
        "pass",
    ),
    "the default generator": ("pass", INSIDE.format(0).replace("manual_seed", "default_generator.manual_seed"), "pass"),
    "an attribute is read": ("self.s = 3", INSIDE.format("self.s"), "pass"),
}
CHANGING = {
    "a step is given": ("pass", GIVEN.format("step"), "pass"),
    "a step is bound early": ("pass", BOUND.format("step"), "pass"),
    "set from outside": ("self.s = 3", GIVEN.format("self.s"), "net.s = step"),
    "set by name": ("self.s = 3", GIVEN.format("self.s"), "setattr(net, 's', step)"),
    "counted": ("self.s = 3", f"self.s += 1\n        {GIVEN.format('self.s * 3')}", "pass"),
    "counted in a dict": ("self.s = {'n': 0}", "self.s['n'] += 1\n        " + GIVEN.format("self.s['n']"), "pass"),
    "counted in a dict, read inside": (
        "self.s = {'n': 0}",
        "self.s['n'] += 1\n        " + INSIDE.format("self.s['n']"),
        "pass",
    ),
    "counted inside": (
        "self.s = {'n': 0}",
        INSIDE.format("self.s['n']").replace("torch.m", "self.s['n'] += 1\n            torch.m"),
        "pass",
    ),
    "counted in a list": ("self.s = [0]", "self.s[0] += 1\n        " + INSIDE.format("self.s[0]"), "pass"),
    "counted in a list outside": ("self.s = [0]", GIVEN.format("self.s[0]"), "net.s[0] += 1"),
    "counted in the class": ("pass", "type(self).k += 1\n        " + INSIDE.format("self.k"), "pass"),
    "counted in settings": ("self.s = cfg", "self.s.seed += 1\n        " + GIVEN.format("self.s.seed"), "pass"),
    "drawn": ("pass", f"seed = torch.randint(0, 99, ()).item()\n        {GIVEN.format('seed')}", "pass"),
}


def codes(made: str, body: str, after: str) -> list[str]:
    text = SCRIPT.replace("INIT", made).replace("BODY", body).replace("AFTER", after)
    return [found.code for found in check_source(text) if found.code == "CKPT122"]


@pytest.mark.parametrize("way", FIXED.values(), ids=FIXED)
def test_every_step_draws_the_same(way):
    assert codes(*way) == ["CKPT122"]


@pytest.mark.parametrize("way", CHANGING.values(), ids=CHANGING)
def test_the_seed_may_change(way):
    assert codes(*way) == []
