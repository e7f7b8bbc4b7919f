"""Layers and options that other modules of the project hold, three files apart from the training loop."""

import pytest
from hf_ckpt.lint.api import check_paths

TRAIN = """
import torch
import torch.nn.functional as F
from net import Config, Net

def fit(loader, valid):
    model = Net(Config()).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        model.train()
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
        model.eval()

if __name__ == "__main__":
    fit(torch.load("a.pt"), torch.load("b.pt"))
"""
NET = """
from dataclasses import dataclass, field
from typing import Optional
from torch import nn
from torch.utils.checkpoint import checkpoint
from blocks import *

@dataclass
class Config:
    width: int = 32
    norm: str = "batch"
    drop: float = 0.1
    keep_rng: bool = False
    depth: int = 3

class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.stem = nn.Conv2d(3, cfg.width, 3)
        self.stages = nn.ModuleList(Stage(cfg) for _ in range(cfg.depth))
        self.head = nn.Linear(cfg.width, 10)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False, preserve_rng_state=self.cfg.keep_rng)
        return self.head(x.mean((2, 3)))
"""
NORMS = """
from torch import nn
KINDS = dict(batch=nn.BatchNorm2d, group=lambda w: nn.GroupNorm(8, w))
def build(cfg):
    return KINDS[cfg.norm](cfg.width)
"""
BLOCKS = {
    "a dict in the constructor": """
from torch import Tensor, nn

class Stage(nn.Sequential):
    def __init__(self, cfg):
        norm = {"batch": nn.BatchNorm2d, "group": lambda c: nn.GroupNorm(8, c)}[cfg.norm]
        super().__init__(nn.Conv2d(cfg.width, cfg.width, 3), norm(cfg.width), nn.ReLU(), nn.Dropout2d(cfg.drop))
""",
    "a function with conditions": """
import torch.nn as nn

def make_norm(kind, width):
    if kind == "batch":
        return nn.BatchNorm2d(width)
    if kind == "group":
        return nn.GroupNorm(8, width)
    raise ValueError(kind)

class Stage(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Conv2d(cfg.width, cfg.width, 3)
        self.norm = make_norm(cfg.norm, cfg.width)
        self.drop = nn.Dropout(cfg.drop) if cfg.drop else nn.Identity()
    def forward(self, x):
        return self.drop(self.norm(self.conv(x)).relu())
""",
    "a registry": """
from functools import partial
from torch import nn

NORMS = {}
def register(name):
    def deco(fn):
        NORMS[name] = fn
        return fn
    return deco

@register("batch")
def batch(width):
    return nn.BatchNorm2d(width)

@register("group")
def group(width):
    return nn.GroupNorm(8, width)

class Stage(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(cfg.width, cfg.width, 3), NORMS[cfg.norm](cfg.width), nn.Dropout(p=cfg.drop))
    def forward(self, x):
        return self.body(x)
""",
    "attributes of a class": """
from torch import nn
import torch.nn.functional as F

class Norms:
    batch = nn.BatchNorm2d
    instance = nn.InstanceNorm2d

class Stage(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.p = cfg.drop
        self.conv = nn.Conv2d(cfg.width, cfg.width, 3)
        self.norm = getattr(Norms, cfg.norm)(cfg.width)
    def forward(self, x):
        return F.dropout(self.norm(self.conv(x)), self.p, self.training)
""",
    "a match": """
from torch import nn

def Stage(cfg):
    layers = [nn.Conv2d(cfg.width, cfg.width, 3)]
    match cfg.norm:
        case "batch":
            layers.append(nn.BatchNorm2d(cfg.width))
        case "group":
            layers.append(nn.GroupNorm(8, cfg.width))
    if cfg.drop:
        layers += [nn.Dropout2d(cfg.drop)]
    return nn.Sequential(*layers)
""",
    "a third module": """
from norms import build
from torch import nn

class Stage(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Conv2d(cfg.width, cfg.width, 3)
        self.norm = build(cfg)
        self.drop = nn.Dropout2d(cfg.drop)
    def forward(self, x):
        return self.drop(self.norm(self.conv(x)))
""",
}
OPTIONS = """
class Config:
    def __init__(self, **kw):
        self.width = 32
        self.norm = "batch"
        self.drop = 0.1
        self.keep_rng = False
        self.depth = 3
        self.__dict__.update(kw)
"""
DECLARED = NET[NET.index("@dataclass") : NET.index("class Net")]


def found(folder, net=NET, blocks=BLOCKS["a registry"], train=TRAIN, options=""):
    texts = {"net": net, "blocks": blocks, "train": train, "norms": NORMS, "options": options}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return {found.code for found in check_paths([folder])}


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_what_the_options_choose_is_found(tmp_path, blocks):
    assert {"CKPT106", "CKPT108"} <= found(tmp_path, blocks=blocks)


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_what_they_do_not_choose_is_right(tmp_path, blocks):
    other = "group" if "group" in blocks + NORMS * ("build" in blocks) else "instance"
    net = NET.replace('"batch"', f'"{other}"').replace("keep_rng: bool = False", "keep_rng: bool = True")
    assert not found(tmp_path, net, blocks)


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_what_the_command_line_chooses_is_open(tmp_path, blocks):
    given = "Config(norm=sys.argv[1], keep_rng=bool(int(sys.argv[2])))"
    assert not found(tmp_path, blocks=blocks, train="import sys\n" + TRAIN.replace("Config()", given))


def test_options_of_a_plain_class_in_a_module_of_their_own(tmp_path):
    net = NET.replace(DECLARED, "").replace("import *", "import *\nfrom options import Config\n")
    assert {"CKPT106", "CKPT108"} <= found(tmp_path, net, options=OPTIONS)
    right = OPTIONS.replace('"batch"', '"group"').replace("keep_rng = False", "keep_rng = True")
    assert not found(tmp_path, net, options=right)
