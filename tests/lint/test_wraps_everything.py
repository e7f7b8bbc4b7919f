"""`apply_activation_checkpointing` without a `check_fn`: every module in the model runs again, the model itself does not."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAM = """
from functools import partial
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(8, 8), nn.Dropout(DROPOUT)

    def forward(self, x):
        return x + self.drop(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        x = x + torch.randn_like(x)
        for block in self.blocks:
            x = block(x)
        return x

def wrap(model, policy):
    apply_activation_checkpointing(GIVEN)

def main(policy):
    net = Net()
    wrap(net, policy)
    return net
"""
FASTER = "checkpoint_wrapper_fn=partial(checkpoint_wrapper, preserve_rng_state=False)"


def codes(given: str, dropout: str) -> list[str]:
    text = PROGRAM.replace("GIVEN", given).replace("DROPOUT", dropout)
    return sorted(finding.code for finding in check_source(text, "train.py"))


def test_a_dropout_in_a_block_is_redrawn():
    assert codes(f"model, {FASTER}", "0.1") == ["CKPT108", "CKPT404"]


@pytest.mark.parametrize(
    ("given", "dropout", "found"),
    [
        (f"model, {FASTER}", "0.0", ["CKPT404"]),
        ("model", "0.1", ["CKPT404"]),
        (f"model, {FASTER}, check_fn=policy", "0.1", []),
        (f"model, {FASTER}, auto_wrap_policy=policy", "0.1", []),
    ],
    ids=["noise of the model itself", "preserved", "open check", "policy"],
)
def test_nothing_else_is_redrawn(given, dropout, found):
    assert codes(given, dropout) == found


@pytest.mark.parametrize("rate", ["0.1", "0.0"])
@pytest.mark.parametrize(
    "policy",
    [
        "ModuleWrapPolicy({Block})",
        "partial(transformer_auto_wrap_policy, transformer_layer_cls=(Block,))",
    ],
)
def test_policies_of_fsdp(policy: str, rate: str) -> None:
    given = f"model, {FASTER}, auto_wrap_policy={policy}"
    imported = "from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy\n"
    program = imported + PROGRAM.replace("GIVEN", given).replace("DROPOUT", rate)
    found = [row.code for row in check_source(program) if row.code == "CKPT108"]
    assert found == (["CKPT108"] if rate == "0.1" else [])
