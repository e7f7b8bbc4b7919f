"""Registries that a program writes itself: what a name builds is the class that was registered under it."""

from __future__ import annotations

import pytest
from command import ckpt_lint
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

{registry}

class Base(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))

    def forward(self, x):
        return self.body(x)

{others}

@{register}
class Normed(Base):
    def __init__(self, d):
        super().__init__(d)
        self.norm = nn.BatchNorm1d(d)

    def forward(self, x):
        return x + self.norm(self.body(x))

class Net(nn.Module):
    def __init__(self, names, d):
        super().__init__()
        self.stem = nn.Linear(d, d)
        self.blocks = nn.ModuleList({built} for name in names)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

Net({names}, 4)(torch.randn(2, 4)).sum().backward()
"""
FUNCTION = """
KINDS = {}

def register(name):
    def add(cls):
        KINDS[name] = cls
        return cls
    return add
"""
OBJECT = """
class Registry:
    def __init__(self):
        self.kinds = {}

    def register(self, name):
        def add(cls):
            self.kinds[name] = cls
            return cls
        return add

    def build(self, name, *args):
        return self.kinds[name](*args)

KINDS = Registry()
"""
CLASS = """
class Kinds:
    kinds = {}

    @classmethod
    def register(cls, name):
        def add(made):
            cls.kinds[name] = made
            return made
        return add

    @classmethod
    def build(cls, name, *args):
        return cls.kinds[name](*args)
"""
WAYS = {
    "a dict": (FUNCTION, 'register("{}")', "KINDS[name](d)"),
    "a dict that is asked": (FUNCTION, 'register("{}")', "KINDS.get(name)(d)"),
    "an object": (OBJECT, 'KINDS.register("{}")', "KINDS.build(name, d)"),
    "methods of a class": (CLASS, 'Kinds.register("{}")', "Kinds.build(name, d)"),
    "an object's dict": (OBJECT, 'KINDS.register("{}")', "KINDS.kinds[name](d)"),
}


@pytest.mark.parametrize("more", [1, 6])
@pytest.mark.parametrize("way", WAYS)
def test_names_build_what_is_registered(way: str, more: int) -> None:
    """A list with its name has the class with BatchNorm in it, one without it has not."""
    assert "CKPT106" in _codes(way, more, '("other0", "normed")')
    assert "CKPT106" in _codes(way, more, '["normed"] * 3')
    assert "CKPT106" not in _codes(way, more, '("other0", "other0")')
    assert "CKPT106" not in _codes(way, more, "open('names').read().split()")


BY_NAME = """
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

MODELS = {{}}

def register(made):
    MODELS[made.__name__] = made
    return made

class Net(nn.Module):
    def __init__(self, segments):
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
        self.segments = segments

    def forward(self, x):
        return checkpoint_sequential(self.body, self.segments, x, use_reentrant=False)

@register
def whole():
    return Net(1)

@register
def halves():
    return Net(2)

MODELS["{name}"]()
"""


def test_functions_are_registered_by_their_own_name() -> None:
    """`MODELS[made.__name__] = made`: the function that is asked for is the one that runs."""
    assert [it.code for it in check_source(BY_NAME.format(name="whole"), "train.py")] == ["CKPT210"]
    assert not check_source(BY_NAME.format(name="halves"), "train.py")


BY_MEMBER = """
from enum import Enum
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

class Kind({base}):
    WHOLE = {whole}
    HALVES = {halves}

def build(segments):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])

        def forward(self, x):
            return checkpoint_sequential(self.body, segments, x, use_reentrant=False)
    return Net()

SEGMENTS = {{Kind.WHOLE: 1, Kind.HALVES: 2}}

def make(kind):
    return build({asked})

make({given})
"""


@pytest.mark.parametrize("asked", ["SEGMENTS[kind]", "SEGMENTS.get(kind, 2)"])
@pytest.mark.parametrize("base", ["Enum", "str, Enum"])
def test_members_of_an_enumeration_are_keys(base: str, asked: str) -> None:
    """`SEGMENTS[Kind.WHOLE]`; a member that is a text and the text are the same key."""
    parts = {"base": base, "asked": asked, "whole": "'whole'", "halves": "'halves'"}
    given = ["Kind.WHOLE", *(["'whole'"] if base == "str, Enum" else [])]
    for one in given:
        assert [it.code for it in check_source(BY_MEMBER.format(given=one, **parts), "train.py")] == ["CKPT210"]
    for other in ("Kind.HALVES", "read()"):
        assert not check_source(BY_MEMBER.format(given=other, **parts), "train.py")


def _codes(way: str, more: int, names: str) -> set[str]:
    registry, register, built = WAYS[way]
    others = "\n".join(f"@{register.format(f'other{n}')}\nclass Other{n}(Base):\n    pass\n" for n in range(more))
    parts = {"registry": registry, "register": register.format("normed"), "built": built, "names": names}
    text = SCRIPT.format(others=others, **parts)
    return {it.code for it in check_source(text, "train.py")}


_ADD = "from registry import KINDS\n\nclass Base(nn.Module):\n    def __init__(self, d):\n        super().__init__()\n"
_ENTERED = """        self.linear, self.norm = nn.Linear(d, d), nn.{norm}(d)

    def forward(self, x):
        return self.norm(self.linear(x))

KINDS.register("kind")(Base)
"""
_NET = """from torch import nn
from torch.utils.checkpoint import checkpoint
import layers
from registry import KINDS

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(8, 8), KINDS.build("kind", 8)

    def forward(self, x):
        return checkpoint(self.block, self.first(x), use_reentrant=False)

def train(loader):
    net = Net().train()
    for x in loader:
        net(x).mean().backward()
"""


@pytest.mark.parametrize(("norm", "found"), [("BatchNorm1d", True), ("LayerNorm", False)])
def test_a_registry_in_a_module_of_its_own_is_read_behind_what_it_holds(tmp_path, norm: str, found: bool) -> None:
    """The layers are imported first, so the registry is a module further away when it is met."""
    (tmp_path / "registry.py").write_text(OBJECT)
    (tmp_path / "layers.py").write_text(f"from torch import nn\n{_ADD}{_ENTERED.format(norm=norm)}")
    (tmp_path / "net.py").write_text(_NET)
    printed = ckpt_lint("check", "--isolated", "--no-cache", "--output-format", "concise", ".", cwd=tmp_path).stdout
    assert ("CKPT106" in printed) is found
