"""What a dict of the program gives for a key that is open: one of its values, each for its key."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_MODULES = """\
from torch import nn
from torch.utils.checkpoint import checkpoint


class Pre(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(d), nn.Linear(d, d)

    def forward(self, x):
        return self.linear(self.norm(x))


class Post(Pre):
    def forward(self, x):
        return self.norm(self.linear(x))


class Plain(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x):
        return self.linear(self.linear(x))


WITH_NORM = {"pre": Pre, "post": Post}
BLOCKS = {"pre": Pre, "plain": Plain}
BY_DEPTH = {18: Pre, 50: Pre}
MAKERS = {"pre": lambda d: Pre(d), "post": lambda d: nn.Sequential(Post(d), nn.ReLU())}


class Net(nn.Module):
    def __init__(self, kind, d=8):
        super().__init__()
        self.blocks = nn.ModuleList([MADE for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
"""


def _found(made: str, *, notes: bool = False, before: str = "class Net") -> list[str]:
    text = _MODULES.replace("MADE", made).replace("class Net", before)
    found = [row for row in check_source(text, notes=notes) if row.code == "CKPT106"]
    return [row.message.partition(":")[0] if notes else row.code for row in found if notes or not row.condition]


@pytest.mark.parametrize(
    "made",
    [
        "WITH_NORM[kind](d)",
        "WITH_NORM[kind.lower()](d)",
        "WITH_NORM.get(kind, Pre)(d)",
        "BY_DEPTH[kind](d)",
        "MAKERS[kind](d)",
        'BLOCKS.get("pre")(d)',
        '{"only": Pre}[kind](d)',
        "{18: Plain, 50: Pre}[50](d)",
    ],
)
def test_whichever_it_is(made: str) -> None:
    assert _found(made) == ["CKPT106"]


@pytest.mark.parametrize(
    "made",
    [
        "BLOCKS[kind](d)",
        "BLOCKS.get(kind, Plain)(d)",
        "BLOCKS.get(kind, Pre)(d)",
        'BLOCKS["pre" if kind else "plain"](d)',
        '{"a": Pre, "b": Plain, "c": Pre}[kind](d)',
        '{"a": Plain, "b": Pre, "c": Plain}[kind](d)',
        "{18: Pre, 34: Plain, 50: Pre}.get(kind, Plain)(d)",
        'BLOCKS["plain"](d)',
        "{18: Plain, 50: Pre}[18](d)",
    ],
)
def test_one_of_them_alone(made: str) -> None:
    assert _found(made) == []


@pytest.mark.parametrize(
    ("made", "condition"),
    [
        ("BLOCKS[kind](d)", 'if `kind` is not "plain"'),
        ('{"plain": Plain, "pre": Pre}[kind](d)', 'if `kind` is "pre"'),
        ("{18: Plain, 34: Pre}[kind](d)", "if `kind` is `34`"),
        ('{"a": Pre, "b": Pre, "c": Plain}.get(kind, Plain)(d)', "if `kind in ('a', 'b')`"),
    ],
)
def test_the_condition_is_named(made: str, condition: str) -> None:
    assert _found(made, notes=True) == [condition]


@pytest.mark.parametrize(
    "before",
    [
        "WITH_NORM[name] = other\nclass Net",
        "WITH_NORM.update(more)\nclass Net",
        "def register(name):\n    return lambda cls: WITH_NORM.setdefault(name, cls)\nclass Net",
        'WITH_NORM["plain"] = Plain\nclass Net',
    ],
)
def test_a_registry_that_others_fill(before: str) -> None:
    assert _found("WITH_NORM[kind](d)", before=before) == []


def test_counts_stay_open() -> None:
    counted = """\
import torch
from torch.utils.checkpoint import checkpoint_sequential
SEEN = {"small": 1, "large": 1}
def run(layers, x, size):
    return checkpoint_sequential(layers, SEEN[size], x, use_reentrant=False)
"""
    assert not check_source(counted)


_CHAIN = """\
class Net(nn.Module):
    def __init__(self, kind, d=8):
        super().__init__()
        if kind == "a":
            block = Pre
        elif kind == "b":
            block = SECOND
        else:
            block = THIRD
        self.blocks = nn.ModuleList([block(d) for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
"""


def _of_chain(second: str, third: str, *, notes: bool = False) -> list[str]:
    text = _MODULES.partition("class Net")[0] + _CHAIN.replace("SECOND", second).replace("THIRD", third)
    return [row.message.partition(":")[0] for row in check_source(text, notes=notes) if row.code == "CKPT106"]


def test_one_class_in_two_branches_of_three() -> None:
    assert not _of_chain("Plain", "Pre")
    assert not _of_chain("Pre", "Plain")
    assert _of_chain("Plain", "Pre", notes=True) == ["if `kind == 'a' or not kind == 'b'`"]


def test_one_class_in_two_branches_and_another_mistake_in_the_third() -> None:
    assert len(_of_chain("Post", "Pre")) == 1
    assert len(_of_chain("Pre", "Post")) == 1
    assert len(_of_chain("Pre", "Pre")) == 1
