"""Where scripts keep which variant of the checkpoint runs, and how they ask for it: whichever way, it is followed."""

from __future__ import annotations

import sys

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import argparse
from collections import OrderedDict, UserDict
from dataclasses import dataclass
from enum import Enum, auto
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def forward(self, x, mask=None):
        return x + torch.tanh(self.lin(x)) * mask

{0}

def step(block, x, mask):
    return checkpoint(block, x, mask=mask, use_reentrant={1})

step(Block(), torch.rand(2, 8, requires_grad=True), torch.ones(2, 8))
"""
PARSER = """\
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.set_defaults(reentrant=True)
args = parser.parse_args()
"""
HELPER = """\
def add_defaults(parser):
    parser.set_defaults(reentrant=True)

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    add_defaults(parser)
    return parser.parse_args()

args = parse()
"""
CONFIG = """\
@dataclass
class Config:
    lr: float = 1e-3
    reentrant: bool = True

class Plain:
    lr = 1e-3

    def __init__(self):
        self.reentrant = True

config, plain = Config(), Plain()
"""
REGISTRY = """\
class Registry(dict):
    def register(self, name):
        def add(thing):
            self[name] = thing
            return thing
        return add

MODES = Registry()

@MODES.register("old")
class Old:
    reentrant = True

@MODES.register("new")
class New:
    reentrant = False
"""
ENUM = """\
class Mode(Enum):
    OFF = auto()
    FULL = auto()
    OLD = "old"

    @property
    def reentrant(self):
        return self is Mode.OLD

    def is_new(self):
        return self != Mode.OLD

class Kind(str, Enum):
    OLD = "old"
    NEW = "new"

mode, kind = Mode.OLD, Kind.OLD
"""
#: The setup, and an expression of which it makes True.
WAYS = {
    "defaults of a parser": (PARSER, "args.reentrant"),
    "defaults by getattr": (PARSER, 'getattr(args, "reentrant", False)'),
    "later defaults": (PARSER.replace("args =", "parser.set_defaults(reentrant=True)\nargs =", 1), "args.reentrant"),
    "defaults of a helper": (HELPER, "args.reentrant"),
    "field": (CONFIG, 'getattr(config, "reentrant", False)'),
    "no field": (CONFIG, 'getattr(config, "use_old_variant", True)'),
    "attribute": (CONFIG, 'getattr(plain, "reentrant", False)'),
    "no attribute": (CONFIG, 'getattr(plain, "use_old_variant", True)'),
    "no such thing": (CONFIG, 'not hasattr(plain, "use_new_variant")'),
    "registry": (REGISTRY, 'MODES["old"].reentrant'),
    "registry by get": (REGISTRY, 'MODES.get("old", New).reentrant'),
    "registry of a type": (REGISTRY.replace("(dict)", "(dict[str, type])"), 'MODES["old"].reentrant'),
    "ordered registry": (REGISTRY.replace("(dict)", "(OrderedDict)"), 'MODES["old"]().reentrant'),
    "user's registry": (REGISTRY.replace("(dict)", "(UserDict)"), 'MODES["old"].reentrant'),
    "filled registry": (REGISTRY.replace("Registry()", "Registry(newer=1)"), 'MODES["old"].reentrant'),
    "settings in a dict": ("class Settings(dict):\n    pass\n\nsettings = Settings(old=True)", 'settings["old"]'),
    "settings of a dict": (
        'class Settings(dict):\n    pass\n\nsettings = Settings({"old": False})\nsettings.update(old=True)',
        'settings.get("old")',
    ),
    "member": (ENUM, "mode is Mode.OLD"),
    "same member": (ENUM, "mode == Mode.OLD"),
    "no member": (ENUM, "mode is not Mode.FULL"),
    "another member": (ENUM, "mode != Mode.OFF"),
    "one of the members": (ENUM, "mode in (Mode.FULL, Mode.OLD)"),
    "none of the members": (ENUM, "mode not in {Mode.OFF, Mode.FULL}"),
    "property": (ENUM, "mode.reentrant"),
    "method": (ENUM, "not mode.is_new()"),
    "text": (ENUM, 'kind == "old"'),
    "texts": (ENUM, 'kind in ("older", "old")'),
    "chosen": (ENUM, "(True if mode is Mode.OLD else False)"),
}
#: What stays open, or is False.
RIGHT = {
    "defaults under a condition": (
        PARSER.replace("parser.set", "import os\nif os.environ.get('OLD'):\n    parser.set").replace(
            "args =", "else:\n    parser.set_defaults(reentrant=False)\nargs ="
        ),
        "args.reentrant",
    ),
    "namespace": (
        PARSER.replace("parse_args()", "parse_args(namespace=argparse.Namespace(reentrant=False))"),
        "args.reentrant",
    ),
    "set later": (f"{PARSER}args.reentrant = False", "args.reentrant"),
    "field is not set": (CONFIG.replace("bool = True", "bool = False"), 'getattr(config, "reentrant", True)'),
    "set by name": (f"{CONFIG}config.old = False", 'getattr(config, "old", True)'),
    "set by setattr": (
        f'{CONFIG}for name in ("old",):\n    setattr(config, name, False)',
        'getattr(config, "old", True)',
    ),
    "made up": (
        CONFIG.replace("class Plain:", "class Plain:\n    def __getattr__(self, name):\n        return False"),
        'getattr(plain, "old", True)',
    ),
    "registered anew": (f"{REGISTRY}MODES['old'] = New", 'MODES["old"].reentrant'),
    "registry of another kind": (
        REGISTRY.replace("(dict):", "(dict):\n    def __getitem__(self, name):\n        return New\n"),
        'MODES["old"].reentrant',
    ),
    "other entry": (REGISTRY, 'MODES["new"].reentrant'),
    "other member": (ENUM, "mode is Mode.FULL"),
    "no text": (ENUM, 'mode == "old"'),
    "other text": (ENUM, 'kind == "new"'),
    "other members": (ENUM, "mode in (Mode.FULL, Mode.OFF)"),
    "two names of one": (
        ENUM.replace('OLD = "old"\n\n', 'OLD = "old"\n    FIRST = "old"\n\n'),
        "mode is not Mode.FIRST",
    ),
    "open": (
        ENUM.replace("Mode.OLD, Kind", 'Mode[__import__("os").environ.get("MODE", "OFF")], Kind'),
        "mode is Mode.OLD",
    ),
}


def program(way: tuple[str, str]) -> str:
    return SCRIPT.replace("{0}", way[0]).replace("{1}", way[1])


def codes(script: str) -> set[str]:
    return {found.code for found in check_source(script) if found.code == "CKPT301"}


@pytest.fixture(autouse=True)
def _no_arguments(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])


@pytest.mark.parametrize("way", WAYS)
def test_the_reentrant_variant_refuses_keywords(way):
    script = program(WAYS[way])
    with pytest.raises(ValueError, match="Unexpected keyword arguments: mask"):
        exec(script, {"__name__": "__main__"})
    assert codes(script)


@pytest.mark.parametrize("way", RIGHT)
def test_the_other_variant_may_run(way):
    script = program(RIGHT[way])
    exec(script, {"__name__": "__main__"})
    assert not codes(script)


def test_a_user_may_say_otherwise():
    setup, value = WAYS["defaults of a parser"]
    declared = setup.replace("parser.set", 'parser.add_argument("--reentrant", type=int)\nparser.set')
    assert not codes(program((declared, value)))


def test_other_code_may_declare_an_option():
    setup, value = WAYS["defaults of a parser"]
    assert not codes(
        program((f"from project import more_options\n{setup}".replace("args =", "more_options(parser)\nargs ="), value))
    )
