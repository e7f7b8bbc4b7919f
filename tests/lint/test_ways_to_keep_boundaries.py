"""Boundaries between checkpointed segments that are kept detached, in dicts, lists and objects, by helpers too."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Store:
    def __init__(self):
        self.kept = {}
    def put(self, i, h):
        self.kept[i] = h.detach()
    def get(self, i):
        return self.kept[i]
    def last(self):
        return self.kept[max(self.kept)]

def keep_in(held, h):
    held.append(h.detach())

class Enc(nn.Module):
    def __init__(self, dim=16, depth=4):
        super().__init__()
        self.embed = nn.Embedding(6, dim)
        parts = [nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim)) for _ in range(depth)]
        self.segments = nn.ModuleList(parts)
        self.boundaries = {}
        self.trail = []
        self.store = Store()

    def keep(self, index, hidden):
        self.boundaries[index] = hidden.detach()

    def push(self, hidden):
        self.trail.append(hidden.detach())

    def give(self, index):
        return self.boundaries[index]

    def cut(self, hidden):
        return hidden.detach()

    def forward(self, bases):
"""
TAIL = """
        return hidden

net = Enc()
optim = torch.optim.AdamW(net.parameters())
for bases, label in torch.load("promoters.pt"):
    loss = nn.functional.mse_loss(net(bases).mean((1, 2)), label)
    optim.zero_grad()
    loss.backward()
    optim.step()
"""
#: The body of `forward`.
CUT = {
    "in a dict of the object": """        self.boundaries[0] = self.embed(bases).detach()
        for index, segment in enumerate(self.segments):
            hidden = checkpoint(segment, self.boundaries[index], use_reentrant=False)
            self.boundaries[index + 1] = hidden.detach()
""",
    "by a method": """        self.keep(0, self.embed(bases))
        for index, segment in enumerate(self.segments):
            hidden = checkpoint(segment, self.boundaries[index], use_reentrant=False)
            self.keep(index + 1, hidden)
""",
    "by a method that appends": """        self.trail.clear()
        self.push(self.embed(bases))
        for segment in self.segments:
            hidden = checkpoint(segment, self.trail[-1], use_reentrant=False)
            self.push(hidden)
""",
    "by two methods": """        self.keep(0, self.embed(bases))
        for index, segment in enumerate(self.segments):
            hidden = checkpoint(segment, self.give(index), use_reentrant=False)
            self.keep(index + 1, hidden)
""",
    "by a function that gets the list": """        trail = [self.embed(bases)]
        for segment in self.segments:
            hidden = checkpoint(segment, trail[-1], use_reentrant=False)
            keep_in(trail, hidden)
""",
    "by an object": """        self.store.put(0, self.embed(bases))
        for i, segment in enumerate(self.segments):
            hidden = checkpoint(segment, self.store.get(i), use_reentrant=False)
            self.store.put(i + 1, hidden)
""",
    "by pop": """        self.trail = [self.embed(bases)]
        for segment in self.segments:
            hidden = checkpoint(segment, self.trail.pop(), use_reentrant=False)
            self.trail.append(hidden.detach())
""",
    "by a function inside": """        kept = [self.embed(bases)]
        def save(h):
            kept.append(h.detach())
        for segment in self.segments:
            hidden = checkpoint(segment, kept[-1], use_reentrant=False)
            save(hidden)
""",
    "cut by a method before": """        hidden = self.embed(bases)
        for segment in self.segments:
            hidden = self.cut(hidden)
            hidden = checkpoint(segment, hidden, use_reentrant=False)
""",
    "cut by a method behind": """        hidden = self.embed(bases)
        for segment in self.segments:
            hidden = self.cut(checkpoint(segment, hidden, use_reentrant=False))
""",
    "in an attribute": """        self.last = self.embed(bases)
        for segment in self.segments:
            hidden = checkpoint(segment, self.last, use_reentrant=False)
            self.last = hidden.detach()
""",
    "under one key": """        self.keep("h", self.embed(bases))
        for segment in self.segments:
            hidden = checkpoint(segment, self.boundaries["h"], use_reentrant=False)
            self.keep("h", hidden)
""",
}
RIGHT = {
    "a log": """        hidden = self.embed(bases)
        for index, segment in enumerate(self.segments):
            hidden = checkpoint(segment, hidden, use_reentrant=False)
            self.keep(index + 1, hidden)
""",
    "a loss of each": """        self.keep(0, self.embed(bases))
        total = 0
        for index, segment in enumerate(self.segments):
            hidden = checkpoint(segment, self.boundaries[index], use_reentrant=False)
            self.keep(index + 1, hidden)
            total = total + hidden
        hidden = total
""",
    "a memory beside it": """        self.trail.clear()
        hidden = self.embed(bases)
        self.push(hidden)
        for segment in self.segments:
            hidden = checkpoint(segment, hidden + self.trail[-1], use_reentrant=False)
            self.push(hidden)
""",
    "all are stacked": """        outs = []
        self.keep(0, self.embed(bases))
        for index, segment in enumerate(self.segments):
            outs.append(checkpoint(segment, self.give(index), use_reentrant=False))
            self.keep(index + 1, outs[-1])
        hidden = torch.stack(outs).sum(0)
""",
    "a log in an object": """        self.store.put(0, self.embed(bases))
        hidden = self.embed(bases)
        for i, segment in enumerate(self.segments):
            hidden = checkpoint(segment, hidden, use_reentrant=False)
            self.store.put(i + 1, hidden)
""",
}


def codes(body: str) -> set[str]:
    return {found.code for found in check_source(HEAD + body.rstrip("\n") + TAIL)}


@pytest.mark.parametrize("body", CUT.values(), ids=CUT)
def test_segments_before_it_do_not_learn(body):
    assert "CKPT121" in codes(body)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_a_copy_beside_it_is_right(body):
    assert "CKPT121" not in codes(body)


@pytest.mark.parametrize("body", CUT.values(), ids=CUT)
def test_what_is_kept_as_it_is_is_right(body, monkeypatch):
    monkeypatch.setitem(globals(), "HEAD", HEAD.replace(".detach()", ""))
    assert "CKPT121" not in codes(body.replace(".detach()", ""))
