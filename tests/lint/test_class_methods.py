"""Methods of classes: what they are called on is the class, and what they make is an object of it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import functools
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

class Net(nn.Module):
    default = {default}

    def __init__(self, segments):
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
        self.segments = segments

{method}

    def forward(self, x):
        return checkpoint_sequential(self.body, self.segments, x, use_reentrant=False)

{made}
"""
OF = """
    @classmethod
    def of(cls, settings):
        return cls(settings["segments"])
"""
BY_DEFAULT = """
    @classmethod
    def of(cls):
        return cls(cls.default)
"""
PLAIN = """
    @staticmethod
    def of(settings):
        return Net(settings["segments"])
"""
WAYS = {
    "a dict": (OF, 'Net.of({{"segments": {count}}})'),
    "by an object": (OF, 'Net({count}).of({{"segments": {count}}})'),
    "handed on": (OF, 'make = Net.of\nmake({{"segments": {count}}})'),
    "a partial": (OF, 'functools.partial(Net.of, {{"segments": {count}}})()'),
    "the class's own": (BY_DEFAULT, "Net.of()"),
    "by a parameter": (OF, 'def make(kind):\n    return kind.of({{"segments": {count}}})\n\nmake(Net)'),
    "a static method": (PLAIN, 'Net.of({{"segments": {count}}})'),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_class_method_makes(way: str) -> None:
    """The number of segments that it is given reaches the constructor."""
    assert _codes(way, 1) == ["CKPT210"]
    assert _codes(way, 2) == []


def test_what_stays_open() -> None:
    """Settings that come from elsewhere, and a method that nobody calls."""
    for made in ("Net.of(load())", "net = None"):
        assert not check_source(SCRIPT.format(default=1, method=OF, made=made), "train.py")


def _codes(way: str, count: int) -> list[str]:
    method, made = WAYS[way]
    text = SCRIPT.format(default=count, method=method, made=made.format(count=count))
    return [it.code for it in check_source(text, "train.py")]
