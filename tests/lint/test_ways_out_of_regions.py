"""What a reentrant checkpoint loses of what it gives, and which inputs are changed behind it, in many spellings."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SIDE = """\
import functools
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from dataclasses import dataclass
from typing import NamedTuple
from collections import namedtuple, OrderedDict

AUX = []

class MoE(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.gate = nn.Linear(d, 4)
        self.fc = nn.Linear(d, d)
        self.losses = []
        self.aux = 0.0
        self.stats = {}

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        aux = (p.mean(0) ** 2).sum()
        {0}
        return self.fc(x) * p.amax(-1, keepdim=True)

class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(8, d)
        self.moe = MoE(d)
        self.layers = nn.ModuleList([MoE(d) for _ in range(2)])
        self.out = nn.Linear(d, 4)

    def forward(self, x):
        x = self.inp(x)
        {1}
        return self.out(x)

    def aux_loss(self):
        return self.moe.aux


def main(loader):
    net = Net()
    net.train()
    opt = torch.optim.AdamW(net.parameters())
    for x, y in loader:
        loss = F.cross_entropy(net(x), y){aux}
        opt.zero_grad(); loss.backward(); opt.step()
"""
#: What the region does, how it is run, and what the loss is added.
SIDE_WAYS = {
    "attr": ("self.aux = aux", "x = checkpoint(self.moe, x, use_reentrant=True)", " + net.moe.aux"),
    "attr scaled": ("self.aux = 0.01 * aux", "x = checkpoint(self.moe, x, use_reentrant=True)", " + 0.1 * net.moe.aux"),
    "loop": (
        "self.aux = aux",
        "for l in self.layers:\n            x = checkpoint(l, x, use_reentrant=True)",
        " + sum(l.aux for l in net.layers)",
    ),
    "loop comp": (
        "self.aux = aux",
        "for l in self.layers:\n            x = checkpoint(l, x, use_reentrant=True)",
        " + sum([l.aux for l in net.layers])",
    ),
    "stack": (
        "self.aux = aux",
        "for l in self.layers:\n            x = checkpoint(l, x, use_reentrant=True)",
        " + torch.stack([l.aux for l in net.layers]).sum()",
    ),
    "modules": (
        "self.aux = aux",
        "for l in self.layers:\n            x = checkpoint(l, x, use_reentrant=True)",
        " + sum(m.aux for m in net.modules() if isinstance(m, MoE))",
    ),
    "getattr": (
        "self.aux = aux",
        "for l in self.layers:\n            x = checkpoint(l, x, use_reentrant=True)",
        " + sum(getattr(m, 'aux', 0) for m in net.modules())",
    ),
    "hasattr": (
        "self.aux = aux",
        "for l in self.layers:\n            x = checkpoint(l, x, use_reentrant=True)",
        " + sum(m.aux for m in net.modules() if hasattr(m, 'aux'))",
    ),
    "list": ("self.losses.append(aux)", "x = checkpoint(self.moe, x, use_reentrant=True)", " + sum(net.moe.losses)"),
    "list -1": ("self.losses.append(aux)", "x = checkpoint(self.moe, x, use_reentrant=True)", " + net.moe.losses[-1]"),
    "dict": ("self.stats['aux'] = aux", "x = checkpoint(self.moe, x, use_reentrant=True)", " + net.moe.stats['aux']"),
    "global": ("AUX.append(aux)", "x = checkpoint(self.moe, x, use_reentrant=True)", " + sum(AUX)"),
    "method": ("self.aux = aux", "x = checkpoint(self.moe, x, use_reentrant=True)", " + net.aux_loss()"),
    "in fwd": (
        "self.aux = aux",
        "x = checkpoint(self.moe, x, use_reentrant=True)\n        self.total = self.moe.aux",
        " + net.total",
    ),
    "setattr": ("setattr(self, 'aux', aux)", "x = checkpoint(self.moe, x, use_reentrant=True)", " + net.moe.aux"),
}
STRUCTURED = """\
import functools
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from dataclasses import dataclass
from typing import NamedTuple
from collections import namedtuple, OrderedDict

@dataclass
class Out:
    h: torch.Tensor
    a: torch.Tensor
class NT(NamedTuple):
    h: torch.Tensor
    a: torch.Tensor
NT2 = namedtuple("NT2", "h a")
class Obj:
    def __init__(self, h, a):
        self.h, self.a = h, a

class Block(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.fc = nn.Linear(d, d)
    def forward(self, x):
        h = self.fc(x)
        a = h.softmax(-1)
        {0}

class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp, self.block, self.out = nn.Linear(8, d), Block(d), nn.Linear(d, 4)
    def forward(self, x):
        r = checkpoint(self.block, self.inp(x), use_reentrant=True)
        {1}

def main(loader):
    net = Net()
    net.train()
    opt = torch.optim.AdamW(net.parameters())
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
"""
STRUCTURED_WAYS = {
    "dict": ("return {'h': h, 'a': a}", "return self.out(r['h']) + r['a'].mean()"),
    "dict()": ("return dict(h=h, a=a)", "return self.out(r['h']) + r['a'].mean()"),
    "dict var": (
        "out = {}\n        out['h'] = h\n        out['a'] = a\n        return out",
        "return self.out(r['h']) + r['a'].mean()",
    ),
    "dataclass": ("return Out(h=h, a=a)", "return self.out(r.h) + r.a.mean()"),
    "obj": ("return Obj(h, a)", "return self.out(r.h) + r.a.mean()"),
    "nested": ("return h, (a, h * 2)", "return self.out(r[0]) + r[1][0].mean()"),
    "nested list": ("return h, [a, a * 2]", "h, (a, b) = r\n        return self.out(h) + a.mean()"),
    "tuple dict": ("return h, {'a': a}", "h, d = r\n        return self.out(h) + d['a'].mean()"),
    "odict": ("return OrderedDict(h=h, a=a)", "return self.out(r['h']) + r['a'].mean()"),
    "modeloutput": (
        "from transformers.modeling_outputs import BaseModelOutput\n        return BaseModelOutput(last_hidden_state=h, hidden_states=(a,))",
        "return self.out(r.last_hidden_state)",
    ),
    "list": ("return [h, a]", "return self.out(r[0]) + r[1].mean()"),
    "list app": (
        "outs = []\n        for i in range(2):\n            outs.append(h * i)\n        return outs",
        "return self.out(r[0])",
    ),
    "gen": ("return tuple([h, [a]])", "return self.out(r[0])"),
    "local fn": ("return {'h': h}", "return self.out(r['h'])"),
    "simplens": ("import types\n        return types.SimpleNamespace(h=h, a=a)", "return self.out(r.h)"),
    "method": (
        "return self.pack(h, a)\n\n    def pack(self, h, a):\n        return {'h': h, 'a': a}",
        "return self.out(r['h'])",
    ),
}
LATER = """\
import functools
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from dataclasses import dataclass
from typing import NamedTuple
from collections import namedtuple, OrderedDict

def residual(a, b):
    a += b
    return a

class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(8, d)
        self.block = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
        self.block2 = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))
        self.act = nn.ReLU(inplace=True)
        self.out = nn.Linear(d, 4)
    def forward(self, x, mask=None):
        h = self.inp(x)
        y = checkpoint(self.block, h, use_reentrant=False)
        {0}

def main(loader):
    net = Net()
    net.train()
    opt = torch.optim.AdamW(net.parameters())
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
"""
LATER_WAYS = {
    "+=": "h += y\n        return self.out(h)",
    "add_": "h.add_(y)\n        return self.out(h)",
    "add_ res": "h = h.add_(y)\n        return self.out(h)",
    "mul_": "h.mul_(0.5)\n        return self.out(h + y)",
    "relu_": "h = torch.relu_(h)\n        return self.out(h + y)",
    "F.relu": "h = F.relu(h, inplace=True)\n        return self.out(h + y)",
    "act": "h = self.act(h)\n        return self.out(h + y)",
    "masked_fill_": "h.masked_fill_(h > 3, 0.0)\n        return self.out(h + y)",
    "index": "h[:, 0] = 0\n        return self.out(h + y)",
    "index +=": "h[:, 0] += 1\n        return self.out(h + y)",
    "slice copy": "h[:, :4].copy_(y[:, :4])\n        return self.out(h + y)",
    "zero_": "h[0].zero_()\n        return self.out(h + y)",
    "view": "v = h.view(-1, 4, 4)\n        v += 1\n        return self.out(h + y)",
    "alias": "z = h\n        z += y\n        return self.out(z)",
    "clamp_": "h.clamp_(min=0)\n        return self.out(h + y)",
    "dropout inplace": "h = F.dropout(h, 0.1, self.training, inplace=True)\n        return self.out(h + y)",
    "helper": "h = residual(h, y)\n        return self.out(h)",
    "second": "h += y\n        h = checkpoint(self.block2, h, use_reentrant=False)\n        return self.out(h)",
    "operator": "h *= 2\n        return self.out(h + y)",
    "scatter": "h.scatter_(1, torch.zeros_like(h[:, :1]).long(), 1.0)\n        return self.out(h + y)",
    "method": "self.mix(h, y)\n        return self.out(h)\n\n    def mix(self, h, y):\n        h.add_(y)",
    "div_": "h /= h.norm(dim=-1, keepdim=True).detach()\n        return self.out(h + y)",
    "t": "h.t().add_(1)\n        return self.out(h + y)",
}
#: What leaves the input as it is.
KEPT_WAYS = {
    "a mask gives a copy": "h[h > 0].zero_()\n        return self.out(h + y)",
    "another tensor": "z = h.clone()\n        z += y\n        return self.out(z)",
    "a name bound anew": "z = h\n        z = z + y\n        z += 1\n        return self.out(z)",
    "its result": "y += 1\n        return self.out(y)",
    "out of place": "h = F.dropout(h, 0.1, self.training)\n        return self.out(h + y)",
    "a helper of its own copy": "h = residual(h.clone(), y)\n        return self.out(h)",
}
LSTM = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(10, 8), nn.Linear(8, 2)
        self.rnn = nn.LSTM(8, 8, batch_first=True)

    def forward(self, ids):
        {0} = checkpoint(self.rnn, self.emb(ids), use_reentrant=True)
        return self.out({1})
"""


def codes(script: str, *parts: str) -> set[str]:
    for at, part in enumerate(parts):
        script = script.replace(f"{{{at}}}", part)
    return {found.code for found in check_source(script)}


@pytest.mark.parametrize("way", SIDE_WAYS)
def test_a_loss_beside_the_result_is_lost(way):
    stored, run, added = SIDE_WAYS[way]
    assert "CKPT113" in codes(SIDE.replace("{aux}", added), stored, run)


@pytest.mark.parametrize("way", STRUCTURED_WAYS)
def test_a_structured_result_is_lost(way):
    assert "CKPT116" in codes(STRUCTURED, *STRUCTURED_WAYS[way])


@pytest.mark.parametrize("way", LATER_WAYS)
def test_the_input_is_changed_behind_the_call(way):
    assert "CKPT117" in codes(LATER, LATER_WAYS[way])


@pytest.mark.parametrize("way", KEPT_WAYS)
def test_the_input_stays_as_it_is(way):
    assert "CKPT117" not in codes(LATER, KEPT_WAYS[way])


@pytest.mark.parametrize(
    ("names", "used", "lost"),
    [
        ("y, (h, c)", "h[-1]", True),
        ("y, state", "state[0][-1]", True),
        ("both", "both[1][0][-1]", True),
        ("y, (h, c)", "y[:, -1]", False),
        ("y, _", "y[:, -1]", False),
        ("both", "both[0][:, -1]", False),
    ],
)
def test_the_state_of_an_lstm_is_lost_where_it_is_read(names, used, lost):
    assert ("CKPT116" in codes(LSTM, names, used)) is lost
