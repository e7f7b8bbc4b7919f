"""What a decorator of the program puts around a method runs again with it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import functools
import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def seeded(seed):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            torch.manual_seed(seed)
            return fn(*args, **kwargs)
        return inner
    return wrap

def scaled(fn):
    def inner(self, x):
        return fn(self, x) * random.random()
    return inner

def logged(fn):
    @functools.wraps(fn)
    def inner(*args):
        print(fn.__name__)
        return fn(*args)
    return inner

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1), nn.Linear(3, 3))

    DECORATED
    def forward(self, x):
        return self.net(x)

    @seeded(7)
    def reset(self):
        nn.init.normal_(self.net[0].weight)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layer = nn.Linear(3, 3), Layer()

    def forward(self, x):
        return checkpoint(self.layer, self.stem(x), use_reentrant=False)
"""


@pytest.mark.parametrize(
    ("decorated", "code"),
    [
        ("@seeded(42)", "CKPT122"),
        ("@scaled", "CKPT115"),
        ("@logged\n    @scaled", "CKPT115"),
        ("@scaled\n    @torch.no_grad()", "CKPT115"),
        ("@logged", None),
        ("", None),
    ],
)
def test_wrappers_are_a_part_of_the_region(decorated: str, code: str | None) -> None:
    """A seed or a draw in one is found; one of another method, and one that only logs, is not."""
    found = {it.code for it in check_source(SCRIPT.replace("DECORATED", decorated), "model.py")}
    assert found == ({code} if code else set())


GUARDED = """
from torch import nn
from torch.utils.checkpoint import checkpoint

def guarded(fn):
    def inner(self, x):
        try:
            return fn(self, x)
        except CAUGHT:
            print("failed")
            return GIVEN
    return inner

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.net = nn.LayerNorm(3), nn.Linear(3, 3)

    @guarded
    def forward(self, x):
        return x + self.net(self.norm(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layer = nn.Linear(3, 3), Layer()

    def forward(self, x):
        return checkpoint(self.layer, self.stem(x), use_reentrant=False)
"""


@pytest.mark.parametrize(
    ("caught", "given", "is_found"),
    [
        ("Exception", "self.norm(x)", True),
        ("(ValueError, Exception)", "x * x", True),
        ("RuntimeError", "self.norm(x)", False),
        ("Exception", "x", False),
    ],
)
def test_a_handler_around_a_method(caught: str, given: str, is_found: bool) -> None:
    """A decorator that catches the end of the recomputation and computes something else."""
    text = GUARDED.replace("CAUGHT", caught).replace("GIVEN", given)
    assert ("CKPT313" in {it.code for it in check_source(text, "model.py")}) is is_found
