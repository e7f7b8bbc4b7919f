"""Iterators and entries that a region uses up: whichever way, the recomputation lacks them; what it makes is its own."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

IMPORTS = """
import itertools
from collections import deque
from functools import partial
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
"""
USED_UP = {
    "an entry that is asked for and given": """
def mix(h, cond):
    h = h + cond["t"]
    if "text" in cond:
        h = h * cond.pop("text")
    return h
def forward(x, t, text):
    return checkpoint(mix, x, {"t": t, "text": text}, use_reentrant=False)
""",
    "the other branch of the question": """
def mix(h, cond):
    h = h + cond["t"]
    if "text" not in cond:
        return h
    return h * cond.pop("text")
def forward(x, t, text):
    return checkpoint(mix, x, {"t": t, "text": text}, use_reentrant=False)
""",
    "closure for": """
def forward(layer, x, weights, biases):
    pairs = zip(weights, biases)
    def run(h):
        for w, b in pairs:
            h = torch.tanh(h @ w + b)
        return h
    return checkpoint(run, x, use_reentrant=False)
""",
    "closure list": """
def forward(layer, x, weights):
    gen = (w * 2 for w in weights)
    def run(h):
        ws = list(gen)
        return torch.tanh(h @ ws[0])
    return checkpoint(run, x, use_reentrant=False)
""",
    "closure zip": """
def forward(layers, x, weights):
    gen = map(torch.exp, weights)
    def run(h):
        for layer, w in zip(layers, gen):
            h = layer(h * w)
        return h
    return checkpoint(run, x, use_reentrant=False)
""",
    "lambda sum": """
def forward(layers, x, weights):
    gen = map(torch.exp, weights)
    return checkpoint(lambda h: torch.sin(h * sum(gen)), x, use_reentrant=False)
""",
    "default": """
def forward(layers, x, weights):
    def run(h, ws=iter(weights)):
        for w in ws:
            h = torch.tanh(h @ w)
        return h
    return checkpoint(run, x, use_reentrant=False)
""",
    "partial pos": """
def mix(ws, h):
    for w in ws:
        h = torch.tanh(h @ w)
    return h
def forward(x, weights):
    return checkpoint(partial(mix, filter(None, weights)), x, use_reentrant=False)
""",
    "next param": """
def mix(h, ws):
    return torch.tanh(h @ next(ws)) @ next(ws)
def forward(x, ws):
    return checkpoint(mix, x, ws, use_reentrant=False)
""",
    "popleft": """
def mix(h, ws):
    return torch.tanh(h @ ws.popleft())
def forward(x, ws):
    return checkpoint(mix, x, deque(ws), use_reentrant=False)
""",
    "del key": """
def mix(h, batch):
    m = batch["mask"]
    del batch["mask"]
    return torch.tanh(h * m)
def forward(x, batch):
    return checkpoint(mix, x, batch, use_reentrant=False)
""",
    "del last": """
def mix(h, ws):
    w = ws[-1]
    del ws[-1]
    return torch.tanh(h * w)
def forward(x, ws):
    return checkpoint(mix, x, ws, use_reentrant=False)
""",
    "popitem": """
def mix(h, ws):
    name, w = ws.popitem()
    return torch.tanh(h * w)
def forward(x, ws):
    return checkpoint(mix, x, ws, use_reentrant=False)
""",
    "self pop": """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.skips = []
    def up(self, x):
        return self.lin(x + self.skips.pop())
    def forward(self, x):
        self.skips.append(x)
        return checkpoint(self.up, x, use_reentrant=False)
""",
    "self deque": """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
    def forward(self, x, skips):
        self.skips = deque(skips)
        for lin in self.lins:
            x = checkpoint(self.up, lin, x, use_reentrant=False)
        return x
    def up(self, lin, x):
        s = self.skips.popleft()
        return lin(x * s)
""",
    "around popleft": """
def forward(lins, x, skips):
    q = deque(skips)
    for lin in lins:
        x = checkpoint(lambda h, lin=lin: lin(h * q.popleft()), x, use_reentrant=False)
    return x
""",
    "set pop walrus": """
def mix(h, opts):
    if (m := opts.pop("mask")) is not None:
        h = h * m
    return torch.tanh(h)
def forward(x, m):
    return checkpoint(mix, x, opts={"mask": m}, use_reentrant=False)
""",
    "comprehension next": """
def forward(lins, x, skips):
    it = iter(skips)
    def run(h):
        return sum(lin(h * next(it)).tanh() for lin in lins)
    return checkpoint(run, x, use_reentrant=False)
""",
    "self iter": """
class Up(nn.Module):
    def __init__(self, noises):
        super().__init__()
        self.lin = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.noises = iter(noises)
    def run(self, x):
        for n in self.noises:
            x = self.lin(x * n)
        return x
    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False)
""",
}
KEPT = {
    "an entry that is asked for and not given": """
def mix(h, cond):
    h = h + cond["t"]
    if "text" in cond:
        h = h * cond.pop("text")
    return h
def forward(x, t, text):
    return checkpoint(mix, x, {"t": t}, use_reentrant=False)
""",
    "a dict from elsewhere": """
def mix(h, cond):
    h = h + cond["t"]
    if "text" in cond:
        h = h * cond.pop("text")
    return h
def forward(x, t, text):
    return checkpoint(mix, x, text, use_reentrant=False)
""",
    "more entries from elsewhere": """
def mix(h, cond):
    h = h + cond["t"]
    if "text" in cond:
        h = h * cond.pop("text")
    return h
def forward(x, t, text):
    return checkpoint(mix, x, {"t": t, **text}, use_reentrant=False)
""",
    "another question beside it": """
def mix(h, cond):
    h = h + cond["t"]
    if "text" in cond and h.sum() > 0:
        h = h * cond.pop("text")
    return h
def forward(x, t, text):
    return checkpoint(mix, x, {"t": t, "text": text}, use_reentrant=False)
""",
    "an entry that stays": """
def mix(h, cond):
    h = h + cond["t"]
    if "text" in cond:
        h = h * cond["text"]
    return h
def forward(x, t, text):
    return checkpoint(mix, x, {"t": t, "text": text}, use_reentrant=False)
""",
    "closure listed": """
def forward(layer, x, weights, biases):
    pairs = list(zip(weights, biases))
    def run(h):
        for w, b in pairs:
            h = torch.tanh(h @ w + b)
        return h
    return checkpoint(run, x, use_reentrant=False)
""",
    "closure inside": """
def forward(layer, x, weights, biases):
    def run(h):
        pairs = zip(weights, biases)
        for w, b in pairs:
            h = torch.tanh(h @ w + b)
        return h
    return checkpoint(run, x, use_reentrant=False)
""",
    "closure param": """
def forward(layer, x, weights, biases):
    pairs = zip(weights, biases)
    def run(h, pairs):
        for w, b in pairs:
            h = torch.tanh(h @ w + b)
        return h
    return checkpoint(run, x, list(pairs), use_reentrant=False)
""",
    "rebound": """
def forward(layer, x, weights, biases):
    pairs = zip(weights, biases)
    pairs = list(pairs)
    def run(h):
        for w, b in pairs:
            h = torch.tanh(h @ w + b)
        return h
    return checkpoint(run, x, use_reentrant=False)
""",
    "next param rebound": """
def mix(h, ws):
    ws = iter(ws)
    return torch.tanh(h @ next(ws)) @ next(ws)
def forward(x, ws):
    return checkpoint(mix, x, ws, use_reentrant=False)
""",
    "put and del": """
def mix(h, batch):
    batch["tmp"] = h * 2
    y = torch.tanh(batch["tmp"])
    del batch["tmp"]
    return y
def forward(x, batch):
    return checkpoint(mix, x, batch, use_reentrant=False)
""",
    "update and pop": """
def mix(h, batch):
    batch.update(tmp=h * 2)
    return torch.tanh(batch.pop("tmp"))
def forward(x, batch):
    return checkpoint(mix, x, batch, use_reentrant=False)
""",
    "copied": """
def mix(h, ws):
    ws = deque(ws)
    return torch.tanh(h @ ws.popleft())
def forward(x, ws):
    return checkpoint(mix, x, ws, use_reentrant=False)
""",
    "self stack": """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.skips = []
    def up(self, x):
        self.skips.append(x)
        return self.lin(x + self.skips.pop())
    def forward(self, x):
        self.skips.append(x)
        return checkpoint(self.up, x, use_reentrant=False)
""",
    "self set": """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
    def forward(self, x, skips):
        self.skips = deque(skips)
        for lin in self.lins:
            x = checkpoint(self.up, lin, x, use_reentrant=False)
        return x
    def up(self, lin, x):
        self.skips = deque([x])
        s = self.skips.popleft()
        return lin(x * s)
""",
    "default pop": """
def mix(h, **opts):
    m = opts.pop("mask")
    return torch.tanh(h * m)
def forward(x, m):
    return checkpoint(mix, x, mask=m, use_reentrant=False)
""",
    "partial list": """
def mix(ws, h):
    for w in ws:
        h = torch.tanh(h @ w)
    return h
def forward(x, weights):
    return checkpoint(partial(mix, [*filter(None, weights)]), x, use_reentrant=False)
""",
    "del kwargs": """
def mix(h, **batch):
    m = batch["mask"]
    del batch["mask"]
    return torch.tanh(h * m)
def forward(x, m):
    return checkpoint(mix, x, mask=m, use_reentrant=False)
""",
    "counter": """
def forward(lins, x, skips):
    step = itertools.count()
    def run(h):
        print(next(step))
        return lins(h)
    return checkpoint(run, x, use_reentrant=False)
""",
    "free name not iterated": """
def forward(lins, x, skips):
    it = iter(skips)
    def run(h):
        return lins(h) if it is not None else h
    y = checkpoint(run, x, use_reentrant=False)
    return y + next(it)
""",
    "self nested handlers pop": """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.stack = []
    def push(self, x):
        self.stack.append(x)
    def up(self, x):
        self.push(x)
        return self.lin(self.stack.pop())
    def forward(self, x):
        return checkpoint(self.up, x, use_reentrant=False)
""",
    "self timers": """
class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.cache = {}
    def up(self, x):
        self.cache.pop("old", None)
        return self.lin(x)
    def forward(self, x):
        return checkpoint(self.up, x, use_reentrant=False)
""",
    "tensors": """
def mix(h, ws):
    del ws.grad
    return torch.tanh(h)
def forward(x, ws):
    return checkpoint(mix, x, ws, use_reentrant=False)
""",
    "an entry that is asked for": """
def mix(h, batch):
    if "mask" in batch:
        del batch["mask"]
    return torch.tanh(h)
def forward(x, m):
    return checkpoint(mix, x, {}, use_reentrant=False)
""",
    "put in first": """
def mix(h, batch):
    batch["tmp"] = h * 2
    return torch.tanh(batch.pop("tmp"))
def forward(x, batch):
    return checkpoint(mix, x, batch, use_reentrant=False)
""",
    "a name is deleted": """
def mix(h, ws):
    y = torch.tanh(h @ ws)
    del ws
    return y
def forward(x, ws):
    return checkpoint(mix, x, ws, use_reentrant=False)
""",
}


def codes(way: str) -> list[str]:
    return [found.code for found in check_source(IMPORTS + way) if found.code == "CKPT125"]


@pytest.mark.parametrize("way", USED_UP.values(), ids=USED_UP)
def test_the_recomputation_lacks_it(way):
    assert codes(way) == ["CKPT125"]


@pytest.mark.parametrize("way", KEPT.values(), ids=KEPT)
def test_the_recomputation_has_it(way):
    assert codes(way) == []
