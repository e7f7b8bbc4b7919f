"""State that a checkpointed `forward` changes and computes with, kept in the places where scripts keep it."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
CALLS = 0
class Block(nn.Module):
    calls = 0
    def __init__(self, d=8):
        super().__init__()
        self.lin = nn.Linear(d, d)
        self.register_buffer("mean", torch.zeros(d))
        self.count = 0
        self.stats = {{"n": 0, "mean": None}}
        self.hist = []
    def forward(self, x):
        h = self.lin(x)
{0}
        return x + torch.tanh(h)
    @torch.no_grad()
    def _update(self, h):
        self.mean.copy_(0.9 * self.mean + 0.1 * h.mean(0))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return x
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in torch.utils.data.DataLoader(data):
    net(x).sum().backward()
    opt.step()
"""
CHANGED = {
    "mean ema": """
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        h = h - self.mean
""",
    "copy_": """
        self.mean.copy_(0.9 * self.mean + 0.1 * h.detach().mean(0))
        h = h - self.mean
""",
    "mul add": """
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        h = h - self.mean
""",
    "lerp_": """
        self.mean.lerp_(h.detach().mean(0), 0.1)
        h = h - self.mean
""",
    "data": """
        self.mean.data = 0.9 * self.mean.data + 0.1 * h.data.mean(0)
        h = h - self.mean
""",
    "no_grad": """
        with torch.no_grad():
            self.mean += 0.1 * (h.mean(0) - self.mean)
        h = h - self.mean
""",
    "setitem": """
        self.mean[:] = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        h = h - self.mean
""",
    "out": """
        torch.add(self.mean * 0.9, h.detach().mean(0), alpha=0.1, out=self.mean)
        h = h - self.mean
""",
    "lerp out": """
        torch.lerp(self.mean, h.detach().mean(0), 0.1, out=self.mean)
        h = h - self.mean
""",
    "count": """
        self.count += 1
        h = h * (1.0 / self.count)
""",
    "dict count": """
        self.stats["n"] += 1
        h = h / self.stats["n"]
""",
    "type attr": """
        type(self).calls += 1
        h = h / type(self).calls
""",
    "global": """
        global CALLS
        CALLS += 1
        h = h / CALLS
""",
    "list": """
        self.hist.append(h.detach().mean())
        h = h - sum(self.hist) / len(self.hist)
""",
    "list len": """
        self.hist.append(1)
        h = h / len(self.hist)
""",
    "helper": """
        self._update(h)
        h = h - self.mean
""",
    "setattr": """
        setattr(self, "count", self.count + 1)
        h = h / self.count
""",
    "count if": """
        self.count += 1
        if self.count % 2 == 0:
            h = h * 0.5
""",
    "get_buffer": """
        self.get_buffer("mean").mul_(0.9).add_(0.1 * h.detach().mean(0))
        h = h - self.mean
""",
    "buffers dict": """
        self._buffers["mean"] = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        h = h - self.mean
""",
    "use before": """
        h = h - self.mean
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
""",
    "nonlocal name": """
        m = self.mean
        m.mul_(0.9).add_(0.1 * h.detach().mean(0))
        h = h - m
""",
}
RIGHT = {
    "every so often": """
        self.count += 1
        if self.count % self.every == 0:
            h = h * 0.5
""",
    "only counted": """
        self.count += 1
""",
    "only logged": """
        self.hist.append(h.detach().mean())
""",
    "out of the region's own": """
        moved = torch.empty_like(h)
        torch.add(h, 1.0, out=moved)
        h = h + moved.detach()
""",
    "another entry": """
        self.stats["n"] += 1
        h = h if self.stats["mean"] is None else h - self.stats["mean"]
""",
    "counted for others": """
        global CALLS
        CALLS += 1
""",
}


def codes(forward):
    return [finding.code for finding in check_source(SCRIPT.format(forward.strip("\n")))]


@pytest.mark.parametrize("forward", CHANGED.values(), ids=CHANGED)
def test_state_that_the_recomputation_finds_changed(forward):
    assert codes(forward) == ["CKPT107"]


@pytest.mark.parametrize("forward", RIGHT.values(), ids=RIGHT)
def test_state_that_the_result_does_not_depend_on(forward):
    assert codes(forward) == []
