"""Unknown keywords of `checkpoint_wrapper`: the checkpointed call gets them, and refuses or takes them."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, scale=1.0PARAMETERS):
        return self.linear(x) * scale

block = checkpoint_wrapper(Block(), GIVEN)
block(torch.randn(2, 4, requires_grad=True)).sum().backward()
"""
REENTRANT = "checkpoint_impl=CheckpointImpl.REENTRANT, "
WRONG = [
    ("", REENTRANT + "checkpoint_kwargs={}"),
    (", **kwargs", REENTRANT + "checkpoint_kwargs={}"),
    ("", REENTRANT + "scale=2.0"),
    ("", "checkpoint_kwargs={}"),
]
RIGHT = [
    ("", REENTRANT + "preserve_rng_state=False"),
    ("", "scale=2.0"),
    (", **kwargs", "checkpoint_kwargs={}"),
    ("", "checkpoint_fn=lambda run, x, **options: run(x), checkpoint_kwargs={}"),
]


def program(parameters: str, given: str) -> str:
    return SCRIPT.replace("PARAMETERS", parameters).replace("GIVEN", given)


def codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text, "train.py") if finding.code == "CKPT308"]


@pytest.mark.parametrize(("parameters", "given"), WRONG)
def test_it_is_refused(parameters, given):
    assert codes(program(parameters, given)) == ["CKPT308"]
    with pytest.raises((ValueError, TypeError), match="keyword"):
        exec(program(parameters, given), {})


@pytest.mark.parametrize(("parameters", "given"), RIGHT)
def test_it_is_taken(parameters, given):
    assert codes(program(parameters, given)) == []
    exec(program(parameters, given), {})


APPLIED = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def wrap(module, **options):
    return checkpoint_wrapper(module, checkpoint_impl=CheckpointImpl.REENTRANT, checkpoint_kwargs={}, **options)

block = nn.Sequential(Block())
apply_activation_checkpointing(block, checkpoint_wrapper_fn=wrap, check_fn=lambda module: isinstance(module, Block))
"""


def test_options_of_a_wrapper_that_torch_calls_are_none():
    text = SCRIPT.replace("PARAMETERS", "").replace("block = checkpoint_wrapper(Block(), GIVEN)", APPLIED)
    assert codes(text) == ["CKPT308"]
    with pytest.raises(ValueError, match="keyword"):
        exec(text, {})
    # Whoever calls it may give a function of its own.
    assert codes(text[: text.index("block = nn.Seq")]) == []
