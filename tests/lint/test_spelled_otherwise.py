"""Mistakes in spellings that users write, each beside the right code that is closest to it."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_HEAD = """
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x, key=None, mask=None):
        x = torch.roll(x, 1) if key is None else x * key
        return self.linear(x if mask is None else x * mask)

"""
_NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.norm, self.ckpt = Block(), nn.LayerNorm(8), False
        self.blocks = nn.Sequential(Block(), Block())
        self.register_buffer("mask", torch.ones(8))

    def forward(self, x):
        mask = self.mask[:4]
"""
_IN_PLACE = "y = checkpoint(self.block, x, use_reentrant=False)\n{}\nreturn x + y"
_MASK = "if self.ckpt:\n    return checkpoint({}, use_reentrant=False)\nreturn self.block(x, mask=mask)"
_PLAIN = "if self.ckpt:\n    return checkpoint({}, use_reentrant=False)\nreturn self.block({})"
_LAST = "if self.ckpt:\n    return checkpoint_sequential(self.blocks, 2, x, use_reentrant=False)\nreturn {}"
WRONG = {
    "an input changed behind the call": ("CKPT117", _IN_PLACE.format("x += y")),
    "None where the other branch gives a mask": ("CKPT128", _MASK.format("self.block, x, None")),
    "a mask for another parameter": ("CKPT128", _PLAIN.format("self.block, x, mask", "x, key=None, mask=mask")),
    "a mask behind None": ("CKPT128", _PLAIN.format("self.block, x, None, mask", "x, mask")),
    "two exchanged": ("CKPT128", _PLAIN.format("self.block, x, self.mask, mask", "x, mask=self.mask, key=mask")),
    "a tuple that is spread": ("CKPT128", "args = (x, None)\n" + _PLAIN.format("self.block, *args", "*args, mask")),
    "segments without what follows": ("CKPT128", _LAST.format("self.norm(self.blocks(x))")),
}
RIGHT = {
    "by position and by name": _PLAIN.format("self.block, x, None, mask", "x, mask=mask"),
    "both by name": _PLAIN.format("self.block, x, mask=mask, key=None", "x, mask=mask"),
    "a tuple that both spread": "args = (x, None)\n" + _PLAIN.format("self.block, *args, mask", "*args, mask=mask"),
    "a tuple that one spreads": "args = x, None, mask\n" + _PLAIN.format("self.block, *args", "x, mask=mask"),
    "a tuple of unknown length": "args = tuple(x)\n" + _PLAIN.format("self.block, *args", "*args, mask"),
    "a new tensor behind the call": _IN_PLACE.format("x = x + y"),
    "the result changed": _IN_PLACE.format("y += x"),
    "None for what the other leaves out": _MASK.format("self.block, x, None, mask"),
    "segments alone": _LAST.format("self.blocks(x)"),
}


def _found(code: str) -> list[str]:
    return [finding.code for finding in check_source(code)]


def _net(body: str) -> str:
    return _HEAD + _NET + textwrap.indent(body, " " * 8) + "\n"


@pytest.mark.parametrize(("code", "body"), WRONG.values(), ids=WRONG.keys())
def test_it_is_found(code, body):
    assert _found(_net(body)) == [code]


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT.keys())
def test_its_neighbour_is_not(body):
    assert _found(_net(body)) == []


@pytest.mark.parametrize(
    ("kinds", "found"),
    [("(Block, net[0])", []), ("(Block, nn.Linear)", ["CKPT208"]), ("(Block, Block)", ["CKPT208"])],
)
def test_a_module_is_none_of_several_classes(kinds, found):
    code = f"net = nn.Sequential(Block())\napply_activation_checkpointing(net, check_fn=lambda m: m in {kinds})\n"
    assert _found(_HEAD + code) == found


_EPOCHS = """
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))

    def forward(self, x):
        if self.training:
            return checkpoint_sequential(self.encoder, 2, x, use_reentrant=False)
        return self.encoder(x)

def train_epoch(model, batches, optimizer):
    model.{mode}()
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

@torch.no_grad()
def validate(model, batches):
    model.eval()
    return [model(batch).mean().item() for batch in batches]

model = Conv()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [torch.randn(2, 3, 16, 16) for _ in range(4)]
for epoch in range(3):
    train_epoch(model, data, optimizer)
    print(validate(model, data))
"""


@pytest.mark.parametrize(("mode", "found"), [("train", ["CKPT106"]), ("eval", [])])
def test_validation_behind_an_epoch_leaves_the_epoch_in_its_mode(mode, found):
    assert _found(_HEAD + _EPOCHS.replace("{mode}", mode)) == found


_POSITIONS = """
def positions(n, d):
    rate = torch.einsum("i,j->ij", torch.arange(n).float(), 1.0 / 10000 ** (torch.arange(d // 2).float() / d))
    return torch.cat([rate.sin(), rate.cos()], -1)

class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(12, 8)
        self.patches.requires_grad_(False)
        {positions}
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, self.patches(x) + self.positions, use_reentrant=True)

model = Vit()
optimizer = torch.optim.SGD(model.block.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(2, 4, 12)).mean().backward()
    optimizer.step()
"""
_TABLES = [
    ('self.register_buffer("positions", positions(4, 8))', ["CKPT104"]),
    ("self.positions = nn.Parameter(positions(4, 8))", []),
]


@pytest.mark.parametrize(("table", "found"), _TABLES, ids=["buffer", "parameter"])
def test_a_table_that_a_function_computes_needs_no_gradient(table, found):
    assert _found(_HEAD + _POSITIONS.replace("{positions}", table)) == found


_PARTS = """
class Parts(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x, scale=1.0):
        return self.linear(x), x.mean()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.ckpt = Parts(), False

    def forward(self, x):
        if self.ckpt:
            x = checkpoint(self.block, x, use_reentrant=False)
        else:
            x, _ = self.block(x, 2.0)
        return RESULT
"""
_RESULTS = [("join(x) if isinstance(x, tuple) else x.mean()", []), ("join(x)", ["CKPT128"])]


@pytest.mark.parametrize(("result", "found"), _RESULTS, ids=["asked for its kind", "not asked"])
def test_a_tuple_that_is_asked_for_its_kind_may_stay_whole(result, found):
    assert _found(_HEAD + _PARTS.replace("RESULT", result)) == found


_SPREAD = """
class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.block, self.other, self.checkpointing = Block(), blocks, True

    def forward(self, x, e0, mask, scale):
        kwargs = GIVEN
        if self.checkpointing:
            x = checkpoint(CHECKPOINTED, use_reentrant=False)
        else:
            x = PLAIN
        return x
"""
_KEYS = '{"key": e0, "mask": mask}'
_SPREADS = [
    (_KEYS, "self.block, x, e0, mask, None", "self.block(x, **kwargs)", []),
    (_KEYS, "self.other, x, e0, mask, None, 0, scale > 0", "self.other(x, **kwargs)", []),
    ("dict(key=e0)", "self.other, x, mask, e0, scale", "self.other(x, mask, **kwargs)", []),
    ('{"key": e0}', "self.block, x, e0, mask", "self.block(x, **kwargs)", ["CKPT128"]),
    ('{"mask": mask}', "self.other, x, mask, scale", "self.other(x, **kwargs)", ["CKPT128"]),
    ('{"mask": mask}', "self.other, x, **kwargs", "self.other(x, mask, scale)", ["CKPT128"]),
]


@pytest.mark.parametrize(("given", "checkpointed", "plain", "expected"), _SPREADS)
def test_what_a_dict_passes_under_a_key_is_not_missing(given, checkpointed, plain, expected):
    code = _SPREAD.replace("GIVEN", given).replace("CHECKPOINTED", checkpointed).replace("PLAIN", plain)
    assert _found(_HEAD + code) == expected


_DECORATED = """
from functools import wraps

def ckpt(fn):
    MADE
    return inner

class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 1), nn.NORM

    @ckpt
    def forward(self, x):
        return self.norm(self.conv(x))
"""
_WRAPPERS = [
    "def inner(self, *args):\n        return checkpoint(fn, self, *args, use_reentrant=False)",
    "def inner(self, *args):\n        if self.training:\n            return checkpoint(fn, self, *args, use_reentrant=False)\n"
    "        return fn(self, *args)",
    "@wraps(fn)\n    def inner(self, x):\n        if not (self.training and torch.is_grad_enabled()):\n"
    "            return fn(self, x)\n        return checkpoint(fn, self, x, use_reentrant=False)",
    "def inner(self, x):\n        run = lambda y: checkpoint(fn, self, y, use_reentrant=False)\n"
    "        return run(x) if self.training else fn(self, x)",
    "def inner(self, *args):\n        return checkpoint(lambda *given: fn(self, *given), *args, use_reentrant=False)",
    "@wraps(fn)\n    def inner(self, x, **more):\n        def run(y):\n            return fn(self, y, **more)\n"
    "        return checkpoint(run, x, use_reentrant=False)",
]


@pytest.mark.parametrize(
    "made", _WRAPPERS, ids=["always", "in training", "out of training", "a lambda", "by a lambda", "by a function"]
)
def test_a_decorator_checkpoints_a_method_that_it_also_calls(made):
    program = _HEAD + _DECORATED.replace("MADE", made)
    assert _found(program.replace("NORM", "BatchNorm2d(width)")) == ["CKPT106"]
    assert _found(program.replace("NORM", "GroupNorm(2, width)")) == []


def test_a_decorator_that_calls_a_method_leaves_it_as_it_is():
    timed = "@wraps(fn)\n    def inner(self, *args):\n        print(fn.__name__)\n        return fn(self, *args)"
    program = _HEAD + _DECORATED.replace("MADE", timed).replace("NORM", "BatchNorm2d(width)")
    assert _found(program) == []
    assert _found(program.replace("self.norm(self.conv(x))", "checkpoint(self.norm, x, use_reentrant=False)")) == [
        "CKPT106"
    ]


_LAYER = """
class Layer(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.linear = nn.Linear(d, d)

    def forward(self, x, mask=None, output_attentions=False, use_cache=False, past=None):
        x = self.linear(x if mask is None else x * mask)
        return (x, x) if output_attentions else (x,)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.ckpt = Layer(), False

    def forward(self, x, mask, output_attentions=False, past=None):
        if self.ckpt:
            return checkpoint(self.layer, GIVEN, use_reentrant=False)
        return self.layer(x, mask=mask, past=past, output_attentions=output_attentions, use_cache=False)
"""
_GIVEN = {"x, mask, None, output_attentions, None": [], "x, None, mask, output_attentions": ["CKPT128"]}


@pytest.mark.parametrize(("given", "found"), _GIVEN.items(), ids=["switches", "a mask"])
def test_a_switch_may_land_in_another_switch(given, found):
    assert _found(_HEAD + _LAYER.replace("GIVEN", given)) == found


_WRAPPED = """
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, CheckpointWrapper

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x):
        return {{"x": self.linear(x)}}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block = nn.Linear(4, 4), {}

    def forward(self, x):
        x = self.stem(x)
        return x + self.block(x)["x"]
"""


@pytest.mark.parametrize("variant", ["CheckpointImpl.REENTRANT", "CheckpointImpl.NO_REENTRANT"])
@pytest.mark.parametrize("wrapper", ["CheckpointWrapper", "wrappers.CheckpointWrapper"])
def test_the_class_wraps_as_its_function_does(wrapper: str, variant: str) -> None:
    """`checkpoint_wrapper` only builds a `CheckpointWrapper`."""
    found = {it.code for it in check_source(_WRAPPED.format(f"{wrapper}(Block(), {variant})"), "model.py")}
    assert ("CKPT116" in found) is (variant == "CheckpointImpl.REENTRANT")
