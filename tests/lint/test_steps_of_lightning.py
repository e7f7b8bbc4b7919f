"""A whole model in one checkpoint in Lightning's training step, where no program calls the backward pass itself."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import LIBRARY as pl
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForSequenceClassification

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Lit(pl.LightningModule):
    def __init__(self, low_mem=True):
        super().__init__()
        self.save_hyperparameters()
        self.net, self.other, self.head, self.loss = Net(), Net(), nn.Linear(8, 2), nn.CrossEntropyLoss()
        self.bert = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")

    def classify(self, h):
        return self.head(h)

    def measure(self, h, y):
        return self.loss(h, y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

{}
"""
RUN = "checkpoint(self.net, x, use_reentrant=False)"
STEP = ("def training_step(self, batch, i):", "    x, y = batch")
#: Methods of the module, by how they spell it.
WAYS = {
    "plainly": (*STEP, f"    return self.loss({RUN}, y)"),
    "by an option": (
        *STEP,
        *("    if self.hparams.low_mem:", f"        out = {RUN}", "    else:", "        out = self.net(x)"),
        "    return self.loss(out, y)",
    ),
    "with what is logged": (*STEP, f"    loss = self.loss({RUN}, y)", "    self.log('loss', loss)", "    return loss"),
    "lambda": (*STEP, "    out = checkpoint(lambda z: self.net(z), x, use_reentrant=False)", "    return out.mean()"),
    "loss in a helper": (*STEP, f"    return self.measure({RUN}, y)"),
    "by hand": (
        *STEP,
        *(f"    loss = self.loss({RUN}, y)", "    self.manual_backward(loss)", "    self.optimizers().step()"),
    ),
    "of transformers": (*STEP, "    return checkpoint(self.bert, x, use_reentrant=False).logits.mean()"),
}
RIGHT = {
    "a head behind": (*STEP, f"    return self.loss(self.head({RUN}), y)"),
    "a head behind, in a helper": (*STEP, f"    return self.loss(self.classify({RUN}), y)"),
    "a head behind a helper": (
        *("def encode(self, x):", f"    return {RUN}", ""),
        *(*STEP, "    return self.loss(self.classify(self.encode(x)), y)"),
    ),
    "a head behind forward": (
        *("def forward(self, x):", f"    return {RUN}", ""),
        *(*STEP, "    return self.loss(self.classify(self(x)), y)"),
    ),
    "another before": (*STEP, f"    return self.loss({RUN.replace('x,', 'self.other(x),')}, y)"),
    "another behind": (*STEP, f"    return self.other({RUN}).mean()"),
    "chunks": (*STEP, f"    return sum({RUN}.mean() for x in x.chunk(4))"),
    "chunks in a loop": (
        *STEP,
        "    out = 0",
        "    for x in x.chunk(4):",
        f"        out += {RUN}.mean()",
        "    return out",
    ),
    "two": (*STEP, f"    return ({RUN} - {RUN.replace('net', 'other')}).square().mean()"),
    "for evaluation": ("def validation_step(self, batch, i):", f"    return {RUN.replace('x,', 'batch,')}"),
    "another method": ("def generate(self, x):", f"    return {RUN}"),
}


def _codes(lines, library):
    body = "\n".join(f"    {line}" if line else "" for line in lines)
    return [it.code for it in check_source(SCRIPT.replace("LIBRARY", library).format(body), "t.py")]


@pytest.mark.parametrize("library", ["pytorch_lightning", "lightning", "lightning.pytorch"])
@pytest.mark.parametrize("way", WAYS)
def test_the_whole_model(way, library):
    assert _codes(WAYS[way], library) == ["CKPT403"]


@pytest.mark.parametrize("way", RIGHT)
def test_a_part_of_what_a_step_runs(way):
    assert "CKPT403" not in _codes(RIGHT[way], "lightning")
