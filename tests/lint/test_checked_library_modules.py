"""Modules of torch itself that a check function of `apply_activation_checkpointing` accepts."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PROGRAM = """
from functools import partial
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList({layer} for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def train(batches, optimizer):
    model = {model}
    wrapper = partial(checkpoint_wrapper, preserve_rng_state={preserve})
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: {check})
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
"""
LAYER = "nn.TransformerEncoderLayer(64, 4)"
IS_LAYER = "isinstance(module, nn.TransformerEncoderLayer)"
ENCODER = f"nn.TransformerEncoder({LAYER}, 6)"


def codes(layer: str = LAYER, check: str = IS_LAYER, model: str = "Net()", preserve: str = "False") -> set[str]:
    text = PROGRAM.format(layer=layer, check=check, model=model, preserve=preserve)
    return {finding.code for finding in check_source(text, "train.py")}


@pytest.mark.parametrize("check", [IS_LAYER, "type(module) is nn.TransformerEncoderLayer"])
@pytest.mark.parametrize("model", ["Net()", ENCODER, f"nn.Sequential(nn.Linear(64, 64), {LAYER})"])
def test_the_layers_drop_by_default(model, check):
    assert "CKPT108" in codes(model=model, check=check)


def test_what_the_check_accepts_counts():
    assert "CKPT106" in codes(layer="nn.BatchNorm1d(64)", check="isinstance(module, (nn.Linear, nn.BatchNorm1d))")


@pytest.mark.parametrize(
    "given",
    [
        {"preserve": "True"},
        {"layer": "nn.TransformerEncoderLayer(64, 4, dropout=0.0)"},
        {"model": "nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, 0.0), 6)"},
        {"check": "isinstance(module, nn.TransformerDecoderLayer)"},
        {"check": "not isinstance(module, nn.TransformerEncoderLayer)"},
        {"layer": "nn.BatchNorm1d(64)", "check": "isinstance(module, nn.Linear)"},
    ],
)
def test_right_neighbours(given):
    assert codes(**given).isdisjoint({"CKPT106", "CKPT108"})
