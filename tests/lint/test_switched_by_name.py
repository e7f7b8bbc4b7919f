"""`parameter.requires_grad = name.startswith(...)`: a test of the names switches what passes on, and the rest off."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
from torch import nn
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased", num_labels=3)
for name, p in model.named_parameters():
    LINES
model.classifier = nn.Linear(768, 3)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
Trainer(model=model, args=TrainingArguments("out"), train_dataset=data).train()
"""


def _found(lines: str) -> list[str]:
    return [found.code for found in check_source(SCRIPT.replace("LINES", lines), "train.py") if found.code == "CKPT405"]


@pytest.mark.parametrize(
    "lines",
    [
        'p.requires_grad = name.startswith("classifier")',
        'p.requires_grad = "classifier" in name',
        'p.requires_grad_(name.startswith(("classifier", "score")))',
        'p.requires_grad = any(part in name for part in ("classifier", "score"))',
        'p.requires_grad = not name.startswith("bert.")',
        'if not any(name.startswith(part) for part in ["classifier"]):\n        p.requires_grad_(False)',
    ],
)
def test_all_but_the_head_is_frozen(lines):
    assert _found(lines) == ["CKPT405"]


def test_the_last_layer_and_the_head_train():
    lines = 'p.requires_grad = name.startswith("bert.encoder.layer.11") or name.startswith("classifier")'
    assert _found(lines) == ["CKPT405"]


@pytest.mark.parametrize(
    "lines",
    [
        'p.requires_grad = not name.startswith("bert.embeddings")',
        'p.requires_grad = "bias" in name or "classifier" in name',
        'p.requires_grad = any(part in name for part in ("classifier", "LayerNorm"))',
        "p.requires_grad = any(part in name for part in trained)",
        "p.requires_grad = name in trained",
        'if "bert.encoder.layer.3" in name:\n        p.requires_grad_(False)',
    ],
)
def test_more_than_the_head_trains(lines):
    assert _found(lines) == []
