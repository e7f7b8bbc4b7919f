"""Objects that are only a place for settings: what they hold is known where the program fills them."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
IMPORTED

config = MADE
DONE

class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        self.drop = nn.Dropout(c.rate)

    def forward(self, x):
        return self.drop(self.body(x))

class Net(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.stem, self.block, self.c = nn.Linear(3, 3), Block(c), c

    def forward(self, x):
        return checkpoint(self.block, self.stem(x), use_reentrant=False, preserve_rng_state=self.c.kept)

net = Net(config)
net(torch.randn(2, 3)).sum().backward()
"""
MAKERS = {
    "from types import SimpleNamespace": "SimpleNamespace(rate={}, kept=False)",
    "from argparse import Namespace": 'Namespace(**{{"rate": {}, "kept": False}})',
    "from easydict import EasyDict": "EasyDict(rate={}, kept=False)",
    "from easydict import EasyDict as edict": 'edict({{"rate": {}, "kept": False}})',
    "import ml_collections": 'ml_collections.ConfigDict({{"rate": {}, "kept": False}})',
    "from munch import munchify": 'munchify({{"rate": {}, "kept": False}})',
    "from omegaconf import OmegaConf": 'OmegaConf.create({{"rate": {}, "kept": False}})',
}


@pytest.mark.parametrize("imported", MAKERS)
def test_what_they_are_made_with_holds(imported: str) -> None:
    """A rate of dropout is read there, and what the program sets later in its place."""
    assert _drops(imported, "0.1")
    assert not _drops(imported, "0.0")
    assert not _drops(imported, "0.1", "config.rate = 0.0")
    assert _drops(imported, "0.0", "config.rate = 0.2")


@pytest.mark.parametrize("maker", ["EasyDict()", "EasyDict(kept=False)"])
def test_they_are_filled_one_by_one(maker: str) -> None:
    """What an empty one gets is in it."""
    given = SCRIPT.replace("IMPORTED", "from easydict import EasyDict").replace("MADE", maker)
    text = given.replace("DONE", "config.kept = False\nconfig.rate = 0.1\nconfig.use = dict(config)")
    assert "CKPT108" in {found.code for found in check_source(text, "train.py")}


NESTED = SCRIPT.replace("IMPORTED", "from yacs.config import CfgNode as CN").replace("MADE", "CN()")
NESTED = NESTED.replace("c.rate", "c.MODEL.RATE").replace("c.kept", "c.MODEL.KEPT")
FILLED = "config.MODEL = CN()\nconfig.MODEL.KEPT = False\nconfig.MODEL.RATE = 0.1\n"


@pytest.mark.parametrize(
    ("done", "is_found"),
    [
        ("", True),
        ("config = config.clone()\nconfig.freeze()", True),
        ("other = config.clone()\nother.MODEL.RATE = 0.0\nother.merge_from_file(path)", True),
        ("config.MODEL.RATE = 0.0", False),
        ("config.merge_from_file(path)", False),
        ("config = config.clone()\nconfig.merge_from_list(options)", False),
        ("config.MODEL.merge_from_other_cfg(options)", False),
    ],
)
def test_nested_settings_are_copied_whole_and_open_once_a_file_is_merged(done: str, is_found: bool) -> None:
    """Yacs: a clone has inner settings of its own, and what a file brings is not known."""
    found = check_source(NESTED.replace("DONE", FILLED + done), "train.py")
    assert ("CKPT108" in {each.code for each in found}) == is_found


def _drops(imported: str, rate: str, done: str = "") -> bool:
    text = SCRIPT.replace("IMPORTED", imported).replace("MADE", MAKERS[imported].format(rate)).replace("DONE", done)
    return "CKPT108" in {found.code for found in check_source(text, "train.py")}
