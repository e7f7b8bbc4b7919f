"""Scripts that build a model and train it: what their constructors, their modes and their results decide.

Each case is a kind of program on which a run and the linter once said different things (``tests/truth``).
"""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        {init}

    def forward(self, x):
        {body}
        return x + torch.tanh(self.fc(x))

class Net(nn.Module):
    def __init__(self, dim=8, use_checkpoint=False):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.never = False
        self.stem = nn.Linear(dim, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(3)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            {use}
        return x

def main():
    model = Net({arguments})
    {prepared}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        model(torch.randn(4, 8)).mean().backward()
        optimizer.step()
    {after}

if __name__ == "__main__":
    main()
"""
PARTS = {"init": "", "body": "", "use": "x = block(x)", "arguments": "8", "prepared": "", "after": ""}
USED = "x = checkpoint(block, x, use_reentrant=False)"
BEHIND = "if {}:\n    x = checkpoint(block, x, use_reentrant=False)\nelse:\n    x = block(x)"
NORM = {"init": "self.bn = nn.BatchNorm1d(dim)", "body": "x = self.bn(x)"}
NUMPY = {"body": "x = x * np.random.rand()"}
AVERAGE = {
    "init": 'self.register_buffer("mean", torch.zeros(dim))',
    "body": (
        "if self.training:\n    with torch.no_grad():\n        self.mean.mul_(0.9).add_(0.1 * x.mean(0))\nx = x - self.mean"
    ),
}


def codes(**parts: str) -> list[str]:
    text = SCRIPT
    for name, code in (PARTS | parts).items():
        place = f"{{{name}}}"
        columns = next(line for line in SCRIPT.splitlines() if place in line).index("{") if name != "arguments" else 0
        text = text.replace(place, textwrap.indent(code, " " * columns).strip())
    return [finding.code for finding in check_source(text, "train.py")]


@pytest.mark.parametrize(
    ("test", "arguments", "expected"),
    [
        ("self.never", "8", []),
        ("self.use_checkpoint", "8", []),
        ("self.use_checkpoint", "8, use_checkpoint=False", []),
        ("self.use_checkpoint", "8, use_checkpoint=True", ["CKPT106"]),
        ("self.use_checkpoint and self.training", "8, False", []),
        ("self.use_checkpoint and self.training", "8, True", ["CKPT106"]),
        ("not self.never", "8", ["CKPT106"]),
    ],
)
def test_what_the_script_passes_decides_a_switch(test, arguments, expected):
    assert codes(**NORM, use=BEHIND.format(test), arguments=arguments) == expected


@pytest.mark.parametrize(
    "part",
    [
        {"prepared": "model.never = True"},
        {"prepared": 'setattr(model, "never", True)'},
        {"prepared": "setattr(model, input(), True)"},
        {"prepared": "other = [Net]"},
        {"after": "class Wide(Net):\n        pass"},
    ],
)
def test_a_switch_that_something_else_may_set_stays_open(part):
    assert "CKPT106" in codes(**NORM, use=BEHIND.format("self.never"), **part)


def test_a_switch_of_a_model_that_another_program_may_build_stays_open():
    text = SCRIPT.partition("def main")[0].replace("{use}", "if self.never:\n                {use}")
    for name, code in (PARTS | NORM | {"use": USED}).items():
        text = text.replace(f"{{{name}}}", code)
    assert [finding.code for finding in check_source(text, "model.py")] == ["CKPT106"]


@pytest.mark.parametrize("block", [NORM, NUMPY, AVERAGE])
@pytest.mark.parametrize(
    "dropped",
    [
        "_ = checkpoint(block, x, use_reentrant=False)\nx = block(x)",
        "y = checkpoint(block, x, use_reentrant=False)\nx = x * 1.0",
    ],
)
def test_a_dropped_result_is_all_that_is_wrong_with_a_checkpoint(dropped, block):
    assert codes(use=dropped, **block) == ["CKPT209"]


@pytest.mark.parametrize("block", [NORM, NUMPY])
def test_a_lost_wrapper_is_all_that_is_wrong(block):
    assert codes(prepared="[checkpoint_wrapper(block) for block in model.blocks]", **block) == ["CKPT209"]


DROPOUT = {"body": "x = F.dropout(x, 0.3, self.training)"}
ALWAYS = {"body": "x = F.dropout(x, 0.3)"}
UNPRESERVED = "x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)"


@pytest.mark.parametrize(
    ("block", "use", "code"),
    [
        (NORM, USED, "CKPT106"),
        (NORM, BEHIND.format("self.training"), "CKPT106"),
        (AVERAGE, USED, "CKPT107"),
        (DROPOUT, UNPRESERVED, "CKPT108"),
        (NUMPY, BEHIND.format("self.training"), "CKPT115"),
    ],
)
def test_a_model_that_stays_in_eval_mode_updates_and_drops_nothing(block, use, code):
    assert codes(**block, use=use, prepared="model.eval()") == []
    for mode in ("", "model.train()", "model.eval()\nmodel.train()"):
        assert codes(**block, use=use, prepared=mode) == [code]
    assert codes(**block, use=use, prepared="model.eval()", after="model.train()") == [code]


def test_what_draws_in_eval_mode_too_is_reported():
    assert codes(**ALWAYS, use=UNPRESERVED, prepared="model.eval()") == ["CKPT108"]
    assert codes(**NUMPY, use=USED, prepared="model.eval()") == ["CKPT115"]
