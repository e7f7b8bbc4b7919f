"""State that changes in train mode alone, where a backward pass runs the region again in eval mode."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_NET = """
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Count(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        UPDATE
        return self.linear(x) * self.steps

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.count = nn.Linear(8, 8), Count()

    def forward(self, x):
        return checkpoint(self.count, self.stem(x), use_reentrant=False)

class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)

    def forward(self, x):
        return self.stem(x)

def validate(model: Net, batches):
    model.eval()
    with torch.no_grad():
        return [model(x) for x in batches]

def train(model: Net, batches):
    teacher = Teacher()
    for x in batches:
        model.train()
"""
_ALWAYS = "self.steps += 1"
_GUARDED = "if self.training:\n            self.steps += 1"
_EVAL = "loss = model(x).mean()\nmodel.eval()\nloss.backward()\n"
_PART = "loss = model(x).mean()\nmodel.count.eval()\nloss.backward()\n"
WRONG = {
    "an update in either mode": (_ALWAYS, _EVAL),
    "eval behind the backward pass": (_GUARDED, "model(x).mean().backward()\nmodel.eval()\n"),
    "eval of another model": (_GUARDED, "teacher.eval()\n(model(x) - teacher(x)).square().mean().backward()\n"),
    "back in train mode": (
        _GUARDED,
        "loss = model(x).mean()\nmodel.eval()\nmodel(x)\nmodel.train()\nloss.backward()\n",
    ),
    "validation behind it": (_GUARDED, "model(x).mean().backward()\nvalidate(model, batches)\n"),
}
RIGHT = {"the model": (_GUARDED, _EVAL), "the module": (_GUARDED, _PART)}


def _codes(update: str, step: str) -> set[str]:
    lines = "".join(f"        {line}\n" for line in step.splitlines())
    return {finding.code for finding in check_source(_NET.replace("UPDATE", update) + lines, "train.py")}


@pytest.mark.parametrize(("update", "step"), WRONG.values(), ids=WRONG)
def test_an_update_that_happens_twice_is_found(update, step):
    assert "CKPT107" in _codes(update, step)


@pytest.mark.parametrize(("update", "step"), RIGHT.values(), ids=RIGHT)
def test_one_that_the_backward_pass_does_not_repeat_is_not(update, step):
    assert _codes(update, step) == set()
