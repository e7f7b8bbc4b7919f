"""How many modules a container gets, and how many segments are asked for: whichever way the program says it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import itertools
from itertools import chain, pairwise, repeat
import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

WIDTHS = (8, 16, 32, 64)
{0}

def forward(x):
    return checkpoint_sequential(net, {1}, x, use_reentrant=False)
"""
#: What makes a container, and how many modules are in it.
LENGTHS = {
    "zip": ("net = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(WIDTHS, WIDTHS[1:])))", 3),
    "zip, its shortest": ("net = nn.Sequential(*[nn.Linear(w, w) for w, _ in zip(WIDTHS, 'AB', strict=False)])", 2),
    "pairwise": ("net = nn.Sequential(*[nn.Linear(a, b) for a, b in pairwise(WIDTHS)])", 3),
    "map of two": ("net = nn.Sequential(*map(nn.Linear, WIDTHS[:-1], WIDTHS[1:]))", 3),
    "a step": ("net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(0, 6, 2)))", 3),
    "linspace": ("net = nn.Sequential(*(nn.Dropout(float(p)) for p in torch.linspace(0, 0.1, 4)))", 4),
    "numpy": ("net = nn.Sequential(*(nn.Dropout(p) for p in np.linspace(0, 0.1, num=5)))", 5),
    "letters": ("net = nn.Sequential(*[nn.Linear(8, 8) if kind == 'L' else nn.ReLU() for kind in 'LRLR'])", 4),
    "a display with a star": ("net = nn.Sequential(*[nn.Linear(8, 8), *[nn.ReLU() for _ in range(3)]])", 4),
    "lists added": ("net = nn.Sequential(*([nn.Linear(8, 8)] + [nn.ReLU() for _ in range(3)]))", 4),
    "a list repeated": ("net = nn.Sequential(*[nn.ReLU(), nn.GELU()] * 3)", 6),
    "repeated from the left": ("net = nn.Sequential(*(3 * [nn.ReLU()]))", 3),
    "two loops": ("net = nn.Sequential(*[nn.ReLU() for _ in range(2) for _ in range(3)])", 6),
    "pairs in turn": ("net = nn.Sequential(*[m for w in WIDTHS for m in (nn.Linear(w, w), nn.ReLU())])", 8),
    "chain": ("net = nn.ModuleList(nn.Linear(w, w) for w in chain(WIDTHS, [8]))", 5),
    "repeat": ("net = nn.ModuleList(nn.Linear(8, w) for w in repeat(8, 3))", 3),
    "a loop over pairs": (
        "layers = []\nfor a, b in zip(WIDTHS, WIDTHS[1:]):\n    layers += [nn.Linear(a, b), nn.ReLU()]\n"
        "net = nn.Sequential(*layers)",
        6,
    ),
    "enumerated pairs": (
        "net = nn.ModuleList()\nfor i, (a, b) in enumerate(zip(WIDTHS, WIDTHS[1:])):\n    net.append(nn.Linear(a, b))",
        3,
    ),
}
#: Containers whose length the file does not decide.
OPEN = {
    "zip": "def make(widths):\n    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(widths, WIDTHS)))\nnet = make(w)",
    "repeated": "net = nn.Sequential(*[nn.ReLU()] * depth)",
    "lists added": "net = nn.Sequential(*([nn.ReLU()] + list(more)))",
    "a condition": "net = nn.Sequential(*[nn.ReLU() for a, b in zip(WIDTHS, WIDTHS[1:]) if a in wanted])",
    "a second loop": "net = nn.Sequential(*[nn.ReLU() for _ in range(2) for _ in range(depth)])",
    "repeat": "net = nn.Sequential(*[nn.ReLU() for _ in repeat(1, depth)])",
    "a set": "net = nn.ModuleList({nn.ReLU() for _ in range(2)} | more)",
}
LIGHTNING = """\
import lightning as L
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

class Lit(L.LightningModule):
    def __init__(self, width=8, chunks=9, act=None):
        super().__init__()
        {0}
        self.body = nn.Sequential(*[nn.Linear(width, width) for _ in range(4)])

    def training_step(self, batch, index):
        return checkpoint_sequential(self.body, {1}, batch, use_reentrant=False).mean()

L.Trainer().fit({2})
"""
KEPT = {
    "attribute": ("self.save_hyperparameters()", "self.hparams.chunks", "Lit()"),
    "entry": ("self.save_hyperparameters()", 'self.hparams["chunks"]', "Lit()"),
    "by name": ('self.save_hyperparameters("chunks", "width")', "self.hparams.chunks", "Lit(16)"),
    "ignoring": ('self.save_hyperparameters(ignore=["act"])', "self.hparams.chunks", "Lit(chunks=5)"),
    "given": ("self.save_hyperparameters(logger=False)", "self.hparams.chunks", "Lit(8, 6)"),
}
NOT_KEPT = {
    "fewer": ("self.save_hyperparameters()", "self.hparams.chunks", "Lit(chunks=4)"),
    "asked of the command line": ("self.save_hyperparameters()", "self.hparams.chunks", "Lit(chunks=args.chunks)"),
    "ignored": ('self.save_hyperparameters(ignore="chunks")', "self.hparams.chunks", "Lit()"),
    "names that are computed": ("self.save_hyperparameters(*names)", "self.hparams.chunks", "Lit()"),
    "not kept": ("pass", "self.hparams.chunks", "Lit()"),
}


def codes(script: str) -> set[str]:
    return {found.code for found in check_source(script)}


@pytest.mark.parametrize("way", LENGTHS)
def test_one_segment_too_many_is_found(way: str) -> None:
    made, length = LENGTHS[way]
    script = SCRIPT.replace("{0}", made)
    assert "CKPT310" in codes(script.replace("{1}", str(length + 1)))
    assert "CKPT310" not in codes(script.replace("{1}", str(length)))


@pytest.mark.parametrize("way", OPEN)
def test_what_is_open_may_be_long_enough(way: str) -> None:
    assert "CKPT310" not in codes(SCRIPT.replace("{0}", OPEN[way]).replace("{1}", "20"))


@pytest.mark.parametrize("way", KEPT)
def test_what_lightning_keeps_of_the_constructor_is_read(way: str) -> None:
    assert "CKPT310" in codes(_lightning(*KEPT[way]))


@pytest.mark.parametrize("way", NOT_KEPT)
def test_what_it_does_not_keep_is_open(way: str) -> None:
    assert "CKPT310" not in codes(_lightning(*NOT_KEPT[way]))


def _lightning(*parts: str) -> str:
    script = LIGHTNING
    for number, part in enumerate(parts):
        script = script.replace(f"{{{number}}}", part)
    return script
