"""A model that a LightningModule is given: the mode it is in when Lightning trains it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import lightning as L
from transformers import AutoConfig, AutoModelForCausalLM
from mine import prepare

class Module(L.LightningModule):
    def __init__(self, model, lr=1e-4):
        super().__init__()
        self.model, self.lr = model, lr
        INSIDE

    def on_fit_start(self):
        START

    def training_step(self, batch, index):
        return self.model(**batch).loss

model = AutoModelForCausalLM.MADE
BEFORE
module = Module(model, lr=3e-5)
BEHIND
L.Trainer(max_epochs=1).fit(module, loader)
"""
ENABLE = "model.gradient_checkpointing_enable()"
PARTS = {
    "INSIDE": "pass",
    "START": "pass",
    "MADE": "from_pretrained('base')",
    "BEFORE": "",
    "BEHIND": "",
}


def _found(**parts: str) -> list[str]:
    text = SCRIPT
    for name, value in (PARTS | parts).items():
        text = text.replace(name, value)
    return [found.code for found in check_source(text, "train.py") if found.code == "CKPT203"]


@pytest.mark.parametrize("where", [{"INSIDE": f"self.{ENABLE}"}, {"INSIDE": ENABLE}, {"BEFORE": ENABLE}], ids=str)
def test_a_model_that_is_given_stays_in_eval_mode(where):
    assert _found(**where) == ["CKPT203"]


@pytest.mark.parametrize(
    "parts",
    [
        {"BEFORE": "model.train()"},
        {"BEFORE": "prepare(model)"},
        {"BEHIND": "module.train()"},
        {"BEHIND": "prepare(module)"},
        {"START": "self.model.train()"},
        {"MADE": "from_config(AutoConfig.from_pretrained('base'))"},
    ],
    ids=str,
)
def test_what_may_put_it_in_train_mode(parts):
    assert _found(INSIDE=f"self.{ENABLE}", **parts) == []
