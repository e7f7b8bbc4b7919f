"""Buffers that a checkpointed region moves, and that something else than its results reads."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
"""

WRONG = {
    "average read by method": """
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.lin(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Q()
    def forward(self, x):
        return checkpoint(self.q, x, use_reentrant=False)
    def normalize(self, x):
        return x - self.q.mean
""",
    "average in eval mode": """
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        if not self.training:
            x = x - self.mean
        return self.lin(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Q()
    def forward(self, x):
        return checkpoint(self.q, x, use_reentrant=False)
""",
    "own batch norm": """
class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(d))
        self.register_buffer("running_var", torch.ones(d))
        self.weight = nn.Parameter(torch.ones(d))
    def forward(self, x):
        if self.training:
            m, v = x.mean(0), x.var(0)
            with torch.no_grad():
                self.running_mean.mul_(0.9).add_(0.1 * m)
                self.running_var.mul_(0.9).add_(0.1 * v)
        else:
            m, v = self.running_mean, self.running_var
        return (x - m) / (v + 1e-5).sqrt() * self.weight
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), Norm(8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
""",
    "saved only": """
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.lin(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Q()
    def forward(self, x):
        return checkpoint(self.q, x, use_reentrant=False)
def save(net):
    torch.save(net.state_dict(), "x.pt")
""",
}

RIGHT = {
    "counts only": """
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        self.steps += 1
        return self.lin(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Q()
    def forward(self, x):
        return checkpoint(self.q, x, use_reentrant=False)
""",
    "not saved not read": """
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8), persistent=False)
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.lin(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Q()
    def forward(self, x):
        return checkpoint(self.q, x, use_reentrant=False)
def save(net):
    torch.save(net.state_dict(), "x.pt")
""",
    "sum of shares": """
class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("load", torch.zeros(8))
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        s = self.lin(x)
        with torch.no_grad():
            self.load += s.softmax(-1).sum(0)
        return s
    def shares(self):
        return self.load / self.load.sum()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Router()
    def forward(self, x):
        return checkpoint(self.q, x, use_reentrant=False)
""",
    "guarded by grad": """
class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.lin = nn.Linear(8, 8)
    def forward(self, x):
        if not torch.is_grad_enabled():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.lin(x)
    def normalize(self, x):
        return x - self.mean
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Q()
    def forward(self, x):
        return checkpoint(self.q, x, use_reentrant=True)
""",
    "outside the checkpoint": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return checkpoint(self.body, x, use_reentrant=False)
    def normalize(self, x):
        return x - self.mean
""",
    "stays in eval": """
class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(d))
    def forward(self, x):
        if self.training:
            m = x.mean(0)
            self.running_mean.mul_(0.9).add_(0.1 * m.detach())
        else:
            m = self.running_mean
        return x - m
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), Norm(8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
net = Net()
net.eval()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(4, 8)).sum().backward()
    opt.step()
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT107" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT107" not in codes(case)
