"""Functions that do nothing but hand on what they get: a call of one is a call of what it calls."""

from __future__ import annotations

import pytest
from hf_ckpt.lint import check_source
from hf_ckpt.lint.facts.interpreter.program import read_program

MODEL = """
import torch
import torch.nn as nn
from functools import partial
from torch.utils.checkpoint import checkpoint

{helper}

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, mask, gate):
        return self.linear(x) * mask + gate

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(4)])
        self.checkpointing = True

    def recomputed(self, function, *args, **kwargs):
        return checkpoint(function, *args, **kwargs)

    def forward(self, x, mask, gate):
        for block in self.blocks:
            if self.checkpointing:
                x = {call}
            else:
                x = block(x, mask, gate)
        return x
"""
#: Each hands everything on to torch's function.
HELPERS = {
    "all": ("def run(*args, **kwargs):\n    return checkpoint(*args, **kwargs)", "run"),
    "the function apart": (
        'def run(function, *args, **kwargs):\n    """Recompute."""\n    out = checkpoint(function, *args, **kwargs)\n'
        "    return out",
        "run",
    ),
    "a lambda": ("run = lambda *args, **kwargs: checkpoint(*args, **kwargs)", "run"),
    "a helper of a helper": (
        "def inner(*args, **kwargs):\n    return checkpoint(*args, **kwargs)\n"
        "def run(function, *rest, **more):\n    return inner(function, *rest, **more)",
        "run",
    ),
    "a method": ("", "self.recomputed"),
}


def codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text)]


@pytest.mark.parametrize("helper", HELPERS.values(), ids=HELPERS.keys())
def test_a_call_of_the_helper_is_one_of_what_it_calls(helper: tuple[str, str]) -> None:
    written, name = helper
    wrong = MODEL.format(helper=written, call=f"{name}(block, x, gate, mask, use_reentrant=False)")
    (finding,) = check_source(wrong)
    assert finding.code == "CKPT128"
    assert finding.span.line == next(
        number for number, line in enumerate(wrong.splitlines(), 1) if f"{name}(block" in line
    )
    assert codes(MODEL.format(helper=written, call=f"{name}(block, x, mask, gate, use_reentrant=False)")) == []


@pytest.mark.parametrize(
    "helper",
    [
        "def run(block, x, gate, mask, **kwargs):\n    return checkpoint(block, x, mask, gate, **kwargs)",
        "def run(function, *args, **kwargs):\n    return checkpoint(function, *args[:1], 1.0, **kwargs)",
        "from another import recompute\ndef run(*args, **kwargs):\n    return recompute(*args, **kwargs)",
    ],
)
def test_a_helper_that_gives_something_else_is_not(helper: str) -> None:
    assert "CKPT128" not in codes(MODEL.format(helper=helper, call="run(block, x, gate, mask, use_reentrant=False)"))


@pytest.mark.parametrize("rest", ["", ", **kwargs"], ids=["inputs alone", "keywords too"])
def test_a_helper_may_add_keywords_of_its_own(rest: str) -> None:
    """They count like those of a partial; the finding stands where the helper is called."""
    helper = f"def run(function, *args{rest}):\n    return checkpoint(function, *args, use_reentrant=False{rest})"
    wrong = MODEL.format(helper=helper, call="run(block, x, gate, mask)")
    (finding,) = check_source(wrong)
    assert (finding.code, wrong.splitlines()[finding.span.line - 1].strip()) == (
        "CKPT128",
        "x = run(block, x, gate, mask)",
    )
    assert codes(MODEL.format(helper=helper, call="run(block, x, mask, gate)")) == []


def test_a_keyword_of_the_helper_is_its_own_mistake() -> None:
    text = (
        "from torch.utils.checkpoint import checkpoint\ndef run(function, *args):\n"
        "    return checkpoint(function, *args, use_reentrant=False, determinism_check={check})\n"
        "def forward(block, other, x):\n    return run(other, run(block, x))\n"
    )
    assert [(it.code, it.span.line) for it in check_source(text.format(check='"none"'))] == [("CKPT124", 3)]
    assert codes(text.format(check='"default"')) == []


REENTRANT = """
import torch
from torch.utils.checkpoint import checkpoint

def run(function, *args{rest}):
    return checkpoint(function, *args{own}{rest})

def block(x):
    return {{"out": x * 2}}

def forward(x):
    return run(block, x{given})["out"].sum()
"""


@pytest.mark.parametrize(
    ("rest", "own", "given", "is_fixed"),
    [
        ("", ", use_reentrant=True", "", False),
        (", **kwargs", ", use_reentrant=True", "", False),
        (", **kwargs", "", ", use_reentrant=True", True),
    ],
    ids=["no keywords", "its own", "the caller's"],
)
def test_a_fix_gives_no_keyword_that_the_helper_refuses(rest: str, own: str, given: str, is_fixed: bool) -> None:
    (finding,) = check_source(REENTRANT.format(rest=rest, own=own, given=given))
    assert (finding.code, finding.fix is not None) == ("CKPT116", is_fixed)
    assert codes(REENTRANT.format(rest=rest, own=own, given=given).replace("=True", "=False")) == []


TWO_CALLERS = """
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

def run(*args, **kwargs):
    return checkpoint(*args, **kwargs)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = run(block, x, use_reentrant=True)
        return x

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        for _ in range(3):
            x = run(self.block, x, use_reentrant={reentrant})
        return x

def train(rank):
    return DDP(Net(), device_ids=[rank]), DDP(Recurrent(), device_ids=[rank])
"""


def test_the_callers_are_told_apart() -> None:
    assert codes(TWO_CALLERS.format(reentrant=True)) == ["CKPT304"]
    assert codes(TWO_CALLERS.format(reentrant=False)) == []


@pytest.mark.parametrize("is_given", [True, False])
def test_a_helper_that_is_given_away_is_walked_too(is_given: bool) -> None:
    """A region that runs it is looked into; one that is only called makes no calls of its own."""
    text = (
        "import torch\nfrom torch.utils.checkpoint import checkpoint\n"
        "def noise(*args, **kwargs):\n    return torch.rand_like(*args, **kwargs)\n"
        f"def step(x):\n    x = noise(x) * x\n    return checkpoint({'noise' if is_given else 'torch.sin'}, x)\n"
    )
    made = [call for call in read_program(text, "example.py").calls if call.name == "torch.rand_like"]
    assert len(made) == 1 + is_given


FACTORY = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x, mask, *, scale=1.0):
        return x * mask * scale

def build(*args, **kwargs):
    return Block(*args, **kwargs)

block = build()

def forward(x, mask):
    return checkpoint(block, x, mask, {given}use_reentrant=False)
"""


def test_a_factory_builds_the_class() -> None:
    assert codes(FACTORY.format(given="dropout=0.1, ")) == ["CKPT308"]
    assert codes(FACTORY.format(given="scale=0.1, ")) == []


DECORATED = """
import functools
import time
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from elsewhere import unknown

{decorator}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    @{name}
    def forward(self, x, mask):
        x = x + mask
        return self.linear(x)

block = Block()

def step(x, mask):
    return checkpoint(block, {given}, use_reentrant=False)
"""
PLAIN = """
def plain(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper"""
TIMED = """
def timed(label):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(self, *args, **kwargs):
            begin = time.time()
            result = function(self, *args, **kwargs)
            print(label, time.time() - begin)
            return result
        return wrapper
    return decorate"""
FILLING = """
def filling(function):
    @functools.wraps(function)
    def wrapper(self, x, mask=None):
        return function(self, x.clone(), x if mask is None else mask)
    return wrapper"""
CHANGING = """
def changing(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        args = [arg.clone() for arg in args]
        result = function(*args, **kwargs)
        return result
    return wrapper"""


@pytest.mark.parametrize(
    ("decorator", "name"),
    [(PLAIN, "plain"), (TIMED, 'timed("block")'), ("", 'torch.amp.autocast("cuda", enabled=False)')],
    ids=["plain", "timed", "autocast"],
)
def test_a_decorated_forward_takes_what_it_says(decorator: str, name: str) -> None:
    text = DECORATED.replace("{decorator}", decorator).replace("{name}", name)
    assert codes(text.replace("{given}", "x")) == ["CKPT308"]
    assert codes(text.replace("{given}", "x, mask")) == []


@pytest.mark.parametrize(
    ("decorator", "name"), [(FILLING, "filling"), (CHANGING, "changing"), ("", "unknown")], ids=str
)
def test_a_decorator_may_give_something_else(decorator: str, name: str) -> None:
    text = DECORATED.replace("{decorator}", decorator).replace("{name}", name)
    assert codes(text.replace("{given}", "x")) == []


AUTOCAST = """
import contextlib
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        with {context}:
            for block in self.blocks:
                checkpoint(block, x, use_reentrant=False)
        return x
"""


def test_autocast_keeps_no_result() -> None:
    assert codes(AUTOCAST.format(context='torch.autocast("cuda")')) == ["CKPT209"]
    assert codes(AUTOCAST.format(context="self.recording()")) == []


@pytest.mark.parametrize("run", ["partial(checkpoint, use_reentrant=False)(block, ", "run("])
def test_a_partial_of_checkpoint_gives_its_own_keywords_only(run: str) -> None:
    """What a partial gives to the block stands elsewhere: it is not compared."""
    helper = "run = partial(checkpoint, use_reentrant=False)"
    text = MODEL.format(helper=helper, call=f"{run}{'block, ' if run == 'run(' else ''}x, gate, mask)")
    assert codes(text) == ["CKPT128"]
    right = MODEL.format(helper=helper, call="partial(checkpoint, block, use_reentrant=False)(x, mask, gate)")
    assert codes(right) == codes(text.replace("x, gate, mask)", "x, mask, gate)")) == []
