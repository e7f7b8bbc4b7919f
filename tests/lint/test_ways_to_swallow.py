"""Context managers around the end of a checkpointed function: those that answer every exception fail in each step."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import contextlib
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(error)
        return True

class Narrow(Swallow):
    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, (RuntimeError, ValueError))

class Wide(Swallow):
    def __exit__(self, kind, error, trace):
        if kind is None:
            return False
        return issubclass(kind, Exception)

class Logged(Swallow):
    def __exit__(self, kind, error, trace):
        if error is not None:
            print(error)

class Named(contextlib.AbstractContextManager):
    def __init__(self, name):
        self.name = name

    def __exit__(self, kind, error, trace):
        if error:
            raise RuntimeError(self.name) from error

class Translated(Named):
    def __exit__(self, *given):
        if given[0] is not None:
            raise ValueError(self.name)

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.lin, self.slow = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        {0}

x = torch.rand(2, 8, requires_grad=True)
checkpoint(Block(), x, use_reentrant=False).sum().backward()
"""
WAYS = {
    "fallback": """\
with Swallow():
    return self.lin(x).relu()
return self.slow(x)
""",
    "fallback, all exceptions": """\
with Wide():
    return self.lin(x).relu()
return self.slow(x)
""",
    "fallback, suppressed": """\
with contextlib.suppress(Exception):
    return self.lin(x).relu()
return self.slow(x)
""",
    "fallback for None": """\
y = None
with Swallow() as _:
    y = self.lin(x).relu()
if y is None:
    y = self.slow(x)
return y
""",
    "no result": """\
with Swallow():
    y = self.lin(x).relu()
return x + y
""",
    "another exception": """\
with Named("block"):
    return self.lin(x).relu()
""",
    "another exception, result later": """\
with torch.autograd.profiler.record_function("block"), Named("block"):
    y = self.lin(x).relu()
return y
""",
}
RIGHT = {
    "narrow": WAYS["fallback"].replace("Swallow", "Narrow"),
    "narrow, suppressed": WAYS["fallback, suppressed"].replace("Exception", "RuntimeError"),
    "logged": WAYS["no result"].replace("Swallow", "Logged"),
    "bound before": f"y = x\n{WAYS['no result']}",
    "nothing behind it": "with Swallow():\n    return self.lin(x).relu()\n",
    "computed behind it": WAYS["no result"].replace("x + y", "self.slow(y)"),
    "fallback keeps the input": WAYS["fallback"].replace("self.slow(x)", "x.clone()"),
    "around the first part": """\
with Named("block"):
    y = self.lin(x)
return self.slow(y).relu()
""",
}


def program(body: str) -> str:
    return SCRIPT.replace("{0}", body.replace("\n", "\n        "))


def codes(body: str) -> set[str]:
    return {found.code for found in check_source(program(body))} & {"CKPT313"}


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_the_recomputation_is_answered(way):
    assert codes(WAYS[way])
    with pytest.raises((AssertionError, RuntimeError, UnboundLocalError)):
        exec(program(WAYS[way]), {})


@pytest.mark.parametrize("way", RIGHT)
def test_the_end_of_the_recomputation_passes(way):
    assert not codes(RIGHT[way])
    exec(program(RIGHT[way]), {})
