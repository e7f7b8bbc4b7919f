"""What a reentrant region leaves outside of it, and a loss adds up."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
"""

WRONG = {
    "aux on self tuple": """
class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
    def forward(self, x):
        s = self.gate(x).softmax(-1)
        self.stats = (s.mean(0).square().sum(), s.max())
        return self.linear(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))
    def forward(self, x):
        for expert in self.experts:
            x = checkpoint(expert, x, use_reentrant=True)
        return x, sum(expert.stats[0] for expert in self.experts)
""",
    "aux dict on self": """
class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
        self.aux = {}
    def forward(self, x):
        self.aux["balance"] = self.gate(x).softmax(-1).mean(0).square().sum()
        return self.linear(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))
    def forward(self, x):
        for expert in self.experts:
            x = checkpoint(expert, x, use_reentrant=True)
        return x, sum(expert.aux["balance"] for expert in self.experts)
""",
    "side read after unpack": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
    def forward(self, x, m):
        self.aux_loss = self.gate(x).mean()
        return self.linear(x), m
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
    def forward(self, x, m):
        aux = 0.0
        for block in self.blocks:
            out = checkpoint(block, x, m, use_reentrant=True)
            x, m = out[0], out[1]
            aux += block.aux_loss
        return x, aux
""",
    "stored in closure var": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def _run(self, x):
        self._aux = self.gate(x).softmax(-1).pow(2).sum()
        return self.body(x)
    def forward(self, x):
        h = checkpoint(self._run, self.pre(x), use_reentrant=True)
        return h, self._aux
def train(loader, opt):
    net = Net()
    for x, y in loader:
        h, aux = net(x)
        loss = (h - y).pow(2).mean() + 0.1 * aux
        loss.backward()
        opt.step()
""",
    "aux returned then loss attr": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
        self.pre = nn.Linear(8, 8)
        self.aux = None
    def _run(self, x):
        self.aux = self.gate(x).softmax(-1).pow(2).sum()
        return self.body(x)
    def forward(self, x):
        return checkpoint(self._run, self.pre(x), use_reentrant=True)
def train(loader, opt):
    net = Net()
    for x, y in loader:
        out = net(x)
        loss = (out - y).pow(2).mean()
        total = loss + 0.1 * net.aux
        total.backward()
        opt.step()
""",
    "aux backward itself": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def run(self, x):
        self.aux = self.gate(x).softmax(-1).pow(2).sum()
        return self.body(x)
    def forward(self, x):
        h = checkpoint(self.run, self.pre(x), use_reentrant=True)
        h = h * (1 + self.aux)
        return h
""",
    "stack kept on parent": """
import torch
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.aux_losses = []
    def _block(self, block, x):
        h = block(x)
        self.aux_losses.append(h.pow(2).mean())
        return h
    def forward(self, x):
        self.aux_losses.clear()
        x = self.pre(x)
        for block in self.blocks:
            x = checkpoint(self._block, block, x, use_reentrant=True)
        return x
def train(loader, opt):
    net = Net()
    for x, y in loader:
        out = net(x)
        loss = (out - y).pow(2).mean() + 0.01 * sum(net.aux_losses)
        loss.backward()
        opt.step()
""",
    "dict out arg": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def forward(self, x):
        extra = {}
        def run(h):
            extra["aux"] = self.gate(h).pow(2).mean()
            return self.body(h)
        h = checkpoint(run, self.pre(x), use_reentrant=True)
        return h.mean() + extra["aux"]
""",
    "nonlocal out": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def forward(self, x):
        aux = None
        def run(h):
            nonlocal aux
            aux = self.gate(h).pow(2).mean()
            return self.body(h)
        h = checkpoint(run, self.pre(x), use_reentrant=True)
        return h.mean() + aux
""",
    "unpacked module level": """
import torch
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def _run(self, x):
        self._aux = self.gate(x).softmax(-1).pow(2).sum()
        return self.body(x)
    def forward(self, x):
        h = checkpoint(self._run, self.pre(x), use_reentrant=True)
        return h, self._aux
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    out = net(torch.randn(4, 8))
    loss = out[0].pow(2).mean() + 0.1 * out[1]
    loss.backward()
    opt.step()
""",
}

RIGHT = {
    "returned flat ok": """
class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
    def forward(self, x):
        return self.linear(x), self.gate(x).mean()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))
    def forward(self, x):
        total = 0
        for expert in self.experts:
            x, aux = checkpoint(expert, x, use_reentrant=True)
            total = total + aux
        return x, total
""",
    "stat only": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def run(self, x):
        self.aux = self.gate(x).softmax(-1).pow(2).sum()
        return self.body(x)
    def forward(self, x):
        return checkpoint(self.run, self.pre(x), use_reentrant=True)
def train(loader, opt, log):
    net = Net()
    for x, y in loader:
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        log(net.aux.item())
""",
    "nested tuple result": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        return self.a(x), (self.b(x), x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.block = Block()
    def forward(self, x):
        out, aux = checkpoint(self.block, self.pre(x), use_reentrant=True)
        return out + aux[0]
""",
    "closure logged": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def forward(self, x):
        extra = {}
        def run(h):
            extra["aux"] = self.gate(h).pow(2).mean()
            return self.body(h)
        h = checkpoint(run, self.pre(x), use_reentrant=True)
        print(extra["aux"].item())
        return h.mean()
""",
    "closure other key": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def forward(self, x):
        extra = {"bias": self.pre(x).mean()}
        def run(h):
            extra["norm"] = h.norm()
            return self.body(h)
        h = checkpoint(run, self.pre(x), use_reentrant=True)
        return h.mean() + extra["bias"]
""",
    "closure detached": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def forward(self, x):
        scale = None
        def run(h):
            nonlocal scale
            scale = self.gate(h).pow(2).mean().detach()
            return self.body(h)
        h = checkpoint(run, self.pre(x), use_reentrant=True)
        return h.mean() + scale
""",
    "unpacked logged": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def _run(self, x):
        self._aux = self.gate(x).softmax(-1).pow(2).sum()
        return self.body(x)
    def forward(self, x):
        h = checkpoint(self._run, self.pre(x), use_reentrant=True)
        return h, self._aux
def train(loader, opt, log):
    net = Net()
    for x, y in loader:
        h, aux = net(x)
        loss = (h - y).pow(2).mean()
        loss.backward()
        log.append(aux.item())
        opt.step()
""",
    "nonreentrant same": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Linear(8, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.gate = nn.Linear(8, 4)
    def forward(self, x):
        extra = {}
        def run(h):
            extra["aux"] = self.gate(h).pow(2).mean()
            return self.body(h)
        h = checkpoint(run, self.pre(x), use_reentrant=False)
        return h.mean() + extra["aux"]
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT113" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT113" not in codes(case)
