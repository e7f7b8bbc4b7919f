"""Results of checkpoints that are detached before a loss gets them."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
"""

WRONG = {
    "returned in module": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)])
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.detach()
def train(loader, opt):
    net = Net()
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        loss.backward()
        opt.step()
""",
    "returned direct": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False).detach()
def train(net, head, loader, opt):
    net = Net()
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        opt.step()
""",
    "into head": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        h = checkpoint(self.body, x, use_reentrant=False)
        return self.head(h.detach())
def train(loader, opt):
    net = Net()
    for x, y in loader:
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        opt.step()
""",
    "loss direct": """
def step(model, x, y, crit):
    out = checkpoint(model, x, use_reentrant=False)
    loss = crit(out.detach(), y)
    loss.backward()
""",
    "encode fn": """
def encode(layers, x):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    return x.detach()
def train(layers, loader, opt):
    for x, y in loader:
        loss = F.mse_loss(encode(layers, x), y)
        loss.backward()
        opt.step()
""",
}

RIGHT = {
    "target only": """
def encode(layers, x):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    return x.detach()
def train(teacher, student, loader, opt):
    for x, y in loader:
        loss = F.mse_loss(student(x), encode(teacher, x))
        loss.backward()
        opt.step()
""",
    "frozen encoder": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.body.requires_grad_(False)
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        h = checkpoint(self.body, x, use_reentrant=False)
        return self.head(h.detach())
def train(loader, opt):
    net = Net()
    for x, y in loader:
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        opt.step()
""",
    "two outputs": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        h = checkpoint(self.body, x, use_reentrant=False)
        return h, h.detach()
def train(loader, opt):
    net = Net()
    for x, y in loader:
        h, feats = net(x)
        loss = F.mse_loss(h, y) + feats.mean()
        loss.backward()
""",
    "probe beside": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)
        self.probe = nn.Linear(8, 2)
    def forward(self, x):
        h = checkpoint(self.body, x, use_reentrant=False)
        return self.head(h), self.probe(h.detach())
def train(loader, opt):
    net = Net()
    for x, y in loader:
        a, b = net(x)
        loss = F.cross_entropy(a, y) + F.cross_entropy(b, y)
        loss.backward()
""",
    "logged": """
def step(model, x, y, crit, log):
    out = checkpoint(model, x, use_reentrant=False)
    loss = crit(out, y)
    log(out.detach())
    loss.backward()
""",
    "eval features": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    def features(self, x):
        return checkpoint(self.body, x, use_reentrant=False).detach()
""",
    "never trained": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False).detach()
def embed(xs):
    net = Net()
    return [net(x) for x in xs]
""",
    "stop grad branch": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.pred = nn.Linear(8, 8)
    def forward(self, x1, x2):
        z1 = checkpoint(self.body, x1, use_reentrant=False)
        z2 = checkpoint(self.body, x2, use_reentrant=False)
        p1, p2 = self.pred(z1), self.pred(z2)
        return p1, p2, z1.detach(), z2.detach()
def train(loader, opt):
    net = Net()
    for a, b in loader:
        p1, p2, z1, z2 = net(a, b)
        loss = -(F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean())
        loss.backward()
""",
}

_PARTS = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
    def forward(self, x):
        return x + self.down(self.up(x).relu())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.ModuleList([Block() for _ in range(3)])
    def forward(self, x):
        for block in self.body:
            x = checkpoint(block, x, use_reentrant=False)
        x = x.detach()
        for block in self.head:
            x = checkpoint(block, x, use_reentrant=False)
        return x
net = Net()
"""
WRONG |= {"nothing frozen": _PARTS, "what follows frozen": _PARTS + "net.head.requires_grad_(False)\n"}
RIGHT |= {
    "a frozen list": _PARTS + "net.body.requires_grad_(False)\n",
    "its parameters": _PARTS + "for parameter in net.body.parameters():\n    parameter.requires_grad = False\n",
    "each frozen": _PARTS + "for block in net.body:\n    block.requires_grad_(False)\n",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT121" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT121" not in codes(case)


_PROBE = """
import torch
class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        h = checkpoint(self.trunk, x, use_reentrant=False)
        h = h.detach()
        return self.head(h)
model = Probe()
opt = torch.optim.AdamW(PARAMETERS, lr=0.1)
for x in torch.randn(4, 2, 8):
    model(x).sum().backward()
    opt.step()
"""
TRAINS_TRUNK = (
    "model.parameters()",
    "model.trunk.parameters()",
    "[{'params': model.head.parameters()}, {'params': model.trunk.parameters(), 'lr': 0.01}]",
    "parameters_of(model)",
)
TRAINS_HEAD = (
    "model.head.parameters()",
    "[{'params': model.head.parameters(), 'lr': 0.2}]",
    "params=model.head.parameters()",
)


@pytest.mark.parametrize("parameters", TRAINS_TRUNK)
def test_a_trunk_that_an_optimizer_gets_is_not_cut_off_on_purpose(parameters):
    assert codes(_PROBE.replace("PARAMETERS", parameters)) == {"CKPT121"}


@pytest.mark.parametrize("parameters", TRAINS_HEAD)
def test_a_linear_probe_is_meant(parameters):
    assert codes(_PROBE.replace("PARAMETERS", parameters)) == set()
