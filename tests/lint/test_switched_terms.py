"""Branches that differ in a switch by which the block adds a term to its result."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAM = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin, self.scale = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h, cond, residual=True):
        y = self.lin(h) * (1 + self.scale(cond))
{body}

class Net(nn.Module):
    def __init__(self, width=8, remat=False):
        super().__init__()
        self.blocks, self.remat = nn.ModuleList(Block(width) for _ in range(3)), remat

    def forward(self, h, cond):
        for block in self.blocks:
            if {test}:
                h = checkpoint(block, {mine}, use_reentrant=False)
            else:
                h = block({plain})
        return h
"""
RESIDUAL = "        return h + y if residual else y"
TERMS = (
    RESIDUAL,
    "        return y if not residual else y + h",
    "        if residual:\n            y = y + h\n        return y",
    "        if residual:\n            y += h\n        return y",
    "        if not residual:\n            return y\n        return h + y",
)
SCALED = "        return y * 0.5 if residual else y"
NOISY = "        return y + torch.randn_like(y) if residual else y"
SAME = "        return nn.functional.gelu(y) if residual else torch.nn.functional.gelu(y)"
OTHER = "        if residual:\n            y = self.lin(y)\n        return y"


def _found(body: str, mine: str, plain: str, test: str) -> list[str]:
    source = PROGRAM.format(body=body, mine=mine, plain=plain, test=test)
    return [finding.code for finding in check_source(source)]


@pytest.mark.parametrize("body", TERMS)
@pytest.mark.parametrize("test", ["torch.is_grad_enabled()", "self.training", "self.remat"])
def test_a_residual_connection_that_one_branch_leaves_out(body: str, test: str) -> None:
    assert _found(body, "h, cond", "h, cond, residual=False", test) == ["CKPT128"]
    assert _found(body, "h, cond, True", "h, cond, False", test) == ["CKPT128"]


def test_a_term_that_a_switch_of_checkpointing_decides() -> None:
    for body in (SCALED, NOISY):
        assert _found(body, "h, cond, False", "h, cond", "self.remat") == ["CKPT128"]


@pytest.mark.parametrize("body", [SCALED, NOISY, SAME, OTHER])
def test_what_only_training_does_may_differ(body: str) -> None:
    assert _found(body, "h, cond", "h, cond, residual=False", "self.training") == []


def test_the_default_and_ways_to_compute_the_same_may_differ() -> None:
    assert _found(RESIDUAL, "h, cond", "h, cond, residual=True", "self.training") == []
    assert _found(RESIDUAL, "h, cond, False", "h, cond, residual=False", "self.remat") == []
    assert _found(SAME, "h, cond", "h, cond, residual=False", "self.remat") == []
