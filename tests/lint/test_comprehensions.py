"""A comprehension over a few objects or names makes something of its own of each."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, x):
        return checkpoint(self.body, x.relu(), use_reentrant=False)

generator, critic = Net(2), Net(2)
optimizer, other = MADE
for step in range(4):
    fake = generator(torch.randn(8, 2))
    critic(fake.detach()).mean().backward()
    other.step()
    critic(fake).mean().backward()
    optimizer.step()
"""
MADE = (
    "(torch.optim.Adam(m.parameters()) for m in {})",
    "[torch.optim.Adam(m.parameters()) for m in {}]",
    "(torch.optim.Adam(nets[name].parameters()) for name in {})",
)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("swapped", [False, True])
def test_objects_are_told_apart(made: str, swapped: bool) -> None:
    """A step of the critic's optimizer changes nothing of the generator, whose graph waits; one of its own does."""
    names = ["critic", "generator"] if swapped else ["generator", "critic"]
    listed = ", ".join(f'"{name}"' for name in names) if "nets" in made else ", ".join(names)
    text = SCRIPT.replace("MADE", made.format(f"({listed})"))
    text = text.replace("optimizer, other", "nets = dict(generator=generator, critic=critic)\noptimizer, other")
    assert ("CKPT114" in {found.code for found in check_source(text, "train.py")}) is swapped


KINDS = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, d), NORM, nn.ReLU(), nn.Linear(d, d))

    def forward(self, x):
        return self.body(x)

class Plain(Block):
    def forward(self, x):
        return x + nn.functional.relu(x)

KINDS = {"plain": Plain, "block": Block}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(2, 2)
        self.blocks = nn.ModuleList([KINDS[kind](2) for kind in LISTED])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
"""


@pytest.mark.parametrize(
    ("norm", "listed", "is_wrong"),
    [
        ("nn.BatchNorm1d(d)", '("plain", "block")', True),
        ("nn.BatchNorm1d(d)", '["block", "block"]', True),
        ("nn.BatchNorm1d(d)", '("plain", "plain")', False),
        ("nn.LayerNorm(d)", '("plain", "block")', False),
    ],
)
def test_names_choose_classes(norm: str, listed: str, is_wrong: bool) -> None:
    """What a dict holds under the names that the comprehension goes through is what the list holds."""
    text = KINDS.replace("NORM", norm).replace("LISTED", listed)
    assert ("CKPT106" in {found.code for found in check_source(text, "model.py")}) is is_wrong


MAPPED = """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, d), NORM, nn.ReLU(), nn.Linear(d, d))

    def forward(self, x):
        return self.body(x)

def block(d):
    return Block(d)

class Net(nn.Module):
    def __init__(self, d=4, depth=3):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList(MADE)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
"""


@pytest.mark.parametrize(
    "made",
    [
        "map(Block, [d] * depth)",
        "map(Block, (d, d))",
        "list(map(block, [d for _ in range(depth)]))",
        "map(lambda _: Block(d), range(depth))",
    ],
)
@pytest.mark.parametrize(("norm", "is_wrong"), [("nn.BatchNorm1d(d)", True), ("nn.LayerNorm(d)", False)])
def test_map_calls_what_it_is_given(made: str, norm: str, is_wrong: bool) -> None:
    """A class or a function of the program is called for each element."""
    text = MAPPED.replace("NORM", norm).replace("MADE", made)
    assert ("CKPT106" in {found.code for found in check_source(text, "model.py")}) is is_wrong
