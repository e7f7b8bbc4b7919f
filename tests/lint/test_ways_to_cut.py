"""How many modules `checkpoint_sequential` cuts, where towers are built from lists of widths."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

TOWER = """\
import torch
import itertools
import sys
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential
class Dense(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.body = nn.Linear(i, o)
    def forward(self, x):
        return self.body(x).relu()
class Tower(nn.Module):
    def __init__(self, hidden, splits):
        super().__init__()
        self.splits = splits
        dims = [512] + hidden
        self.mlp = nn.Sequential(*[Dense(a, b) for a, b in zip(dims[:-1], dims[1:])])
    def forward(self, x):
        return checkpoint_sequential(self.mlp, self.splits, x, use_reentrant=False)
"""
#: Towers of which one has more segments than modules.
TOO_MANY = {
    "two towers": """\
a, b = Tower([8, 8, 8], 2), Tower([8, 8], 4)
""",
    "by name": """\
a = Tower(splits=2, hidden=[8, 8, 8])
b = Tower(splits=4, hidden=[8, 8])
""",
    "through a helper": """\
def make(h, s):
    return Tower(h, s)
a = make([8, 8, 8], 2)
b = make([8, 8], 4)
""",
    "a class derived from it": """\
class Sub(Tower):
    def __init__(self, h):
        super().__init__(h, 4)
a = Tower([8, 8, 8], 2)
b = Sub([8, 8])
""",
    "one tower": """\
Tower([8, 8], 4)
""",
    "pairwise": """\
d = [1, 2, 3, 4]
m = nn.Sequential(*[Dense(a, b) for a, b in itertools.pairwise(d)])
checkpoint_sequential(m, 4, torch.ones(2, 1), use_reentrant=False)
""",
    "a loop over zip": """\
d = [1, 2, 3, 4]
m = []
for a, b in zip(d, d[1:]):
    m.append(Dense(a, b))
checkpoint_sequential(m, 4, torch.ones(2, 1), use_reentrant=False)
""",
    "zip in a tuple": """\
d = (1, 2, 3, 4)
m = nn.ModuleList(Dense(a, b) for a, b in zip(d[:-1], d[1:]))
checkpoint_sequential(m, 4, torch.ones(2, 1), use_reentrant=False)
""",
    "map": """\
d = [1, 2, 3, 4]
m = nn.Sequential(*map(Dense, d[:-1], d[1:]))
checkpoint_sequential(m, 4, torch.ones(2, 1), use_reentrant=False)
""",
    "inside of a model": """\
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Tower([8, 8, 8], 2)
        self.b = Tower([8, 8], 4)
""",
}
#: Towers that have enough modules, or may.
ENOUGH = {
    "fewer": """\
a = Tower([8, 8, 8], 2)
b = Tower([8, 8], 2)
c = Tower([8]*5, 4)
""",
    "written later": """\
a = Tower([8, 8, 8], 2)
b = Tower([8, 8], 4)
b.splits = 2
""",
    "written in a loop": """\
a = Tower([8, 8, 8], 2)
b = Tower([8, 8], 4)
for t in (a, b):
    t.splits = min(t.splits, 2)
""",
    "setattr": """\
a = Tower([8, 8, 8], 2)
b = Tower([8, 8], 4)
for t in (a, b):
    setattr(t, "splits", 2)
""",
    "the derived class decides": """\
class Sub(Tower):
    def __init__(self, h):
        super().__init__(h, 4)
        self.splits = 2
a = Tower([8, 8, 8], 2)
b = Sub([8, 8])
""",
    "open": """\
a = Tower([8, 8, 8], 2)
b = Tower([8, 8], int(sys.argv[1]))
""",
    "under a condition": """\
a = Tower([8, 8, 8], 2)
if len(sys.argv) > 3:
    b = Tower([8, 8], 4)
""",
    "other modules": """\
a = Tower([8, 8, 8], 2)
b = Tower([8, 8], 4)
b.mlp = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
""",
    "appended": """\
a = Tower([8, 8, 8], 2)
b = Tower([8, 8], 4)
b.mlp.append(Dense(8, 8))
b.mlp.append(Dense(8, 8))
""",
    "as few as there are": """\
def make(h, s):
    return Tower(h, min(s, len(h)))
a = make([8, 8, 8], 2)
b = make([8, 8], 4)
""",
    "pairs of an iterator": """\
it = iter([1, 2, 3, 4])
m = nn.Sequential(*[Dense(a, b) for a, b in zip(it, it)])
checkpoint_sequential(m, 2, torch.ones(2, 1), use_reentrant=False)
""",
    "pairwise": """\
d = [1, 2, 3, 4]
m = nn.Sequential(*[Dense(a, b) for a, b in itertools.pairwise(d)])
checkpoint_sequential(m, 3, torch.ones(2, 1), use_reentrant=False)
""",
}


def codes(towers):
    return [found.code for found in check_source(TOWER + towers)]


@pytest.mark.parametrize("towers", TOO_MANY.values(), ids=TOO_MANY)
def test_more_segments_than_modules_raise(towers):
    assert codes(towers) == ["CKPT310"]


@pytest.mark.parametrize("towers", ENOUGH.values(), ids=ENOUGH)
def test_towers_with_enough_modules_are_right(towers):
    assert codes(towers) == []
