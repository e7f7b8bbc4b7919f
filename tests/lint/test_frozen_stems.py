"""What a frozen stem of the program gives needs no gradient where its input needs none: a run decides."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

if TYPE_CHECKING:
    import torch

SCRIPT = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

{helper}
class Stem(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.proj = nn.Linear(4, d)
        self.more = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d))
        self.register_buffer("pos", torch.zeros(d))

    def forward(self, x):
        return self.more(self.proj(x)) + self.pos

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(self, x):
        return x + self.mlp(x)

class Net(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.stem = Stem(d)
        self.token = nn.Parameter(torch.zeros(d))
        self.blocks = nn.ModuleList([Block(d) for _ in range(2)])
        {built}

    def freeze(self):
        self.stem.requires_grad_(False)

    def forward(self, x):
        x = {given}
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

net, head = Net(), nn.Linear(4, 1)
{done}
for _ in range(2):
    head(net(torch.randn(3, 4))).sum().backward()
"""
GIVEN = "self.stem(x)"
HELPER = """
def switch_off(module):
    for parameter in module.parameters():
        parameter.requires_grad = False
"""
#: What is built, what the blocks get, what is done before the training: the blocks lose their gradients.
LOST = (
    ("self.stem.requires_grad_(False)", GIVEN, ""),
    ("switch_off(self.stem)", GIVEN, ""),
    ("self.freeze()", GIVEN, ""),
    ("", GIVEN, "net.freeze()"),
    ("", GIVEN, "for p in net.stem.parameters(): p.requires_grad_(False)"),
    ("", "self.stem.proj(x)", "net.stem.proj.requires_grad_(False)"),
    ("", "self.stem.more(x)", "net.stem.more.requires_grad_(False)"),
)
#: The same, where they need one, or may in another run.
KEPT = (
    ("", GIVEN, ""),
    ("", GIVEN, "net.stem.proj.requires_grad_(False)"),
    ("self.freeze()", f"{GIVEN} + self.token", ""),
    ("self.freeze()", GIVEN, "net.stem.proj.weight.requires_grad_(True)"),
    ("self.freeze()", GIVEN, "net.stem.more[1].requires_grad_(True)"),
    ("self.freeze()", f"{GIVEN}.requires_grad_()", ""),
)


@pytest.mark.parametrize(("built", "given", "done"), LOST)
def test_frozen_stems_lose_gradients(built: str, given: str, done: str) -> None:
    """The finding is there, and the blocks get no gradient."""
    text = _script(built, given, done)
    assert "CKPT104" in {found.code for found in check_source(text, "train.py")}
    assert not _has_gradients(text)


@pytest.mark.parametrize(("built", "given", "done"), KEPT)
def test_what_trains_in_front_keeps_them(built: str, given: str, done: str) -> None:
    """Nothing is said, and the blocks get their gradients."""
    text = _script(built, given, done)
    assert "CKPT104" not in {found.code for found in check_source(text, "train.py")}
    assert _has_gradients(text)


def _script(built: str, given: str, done: str) -> str:
    helper = HELPER if "switch_off" in built else ""
    return SCRIPT.format(helper=helper, built=built, given=given, done=done)


def _has_gradients(text: str) -> bool:
    names: dict[str, torch.nn.Module] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(text, names)
    return names["net"].get_submodule("blocks").get_parameter("0.mlp.0.weight").grad is not None
