"""A frozen backbone of which the last layers train again: how these are chosen, and which choices reach the first."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
from transformers import BertForSequenceClassification

def prepare(count):
    model = BertForSequenceClassification.from_pretrained("bert-base-uncased")
    layers = model.bert.encoder.layer
    model.bert.requires_grad_(False)
    for layer in model.bert.encoder.layer[{chosen}]:
        layer.requires_grad_(True)
    model.gradient_checkpointing_enable({{"use_reentrant": False}})
    return model
"""


@pytest.mark.parametrize("chosen", ["10:", "-2:", "10:12", "len(layers) - 2:", "-2:-1"])
def test_the_first_layers_stay_frozen(chosen: str) -> None:
    """A start other than 0 leaves the first layer frozen."""
    assert _codes(chosen) == {"CKPT405"}


@pytest.mark.parametrize("chosen", [":", "0:", ":10", "count:", "::2", "1::2"])
def test_the_first_layers_may_train(chosen: str) -> None:
    """All layers, the first ones, or a number that is not known."""
    assert not _codes(chosen)


def _codes(chosen: str) -> set[str]:
    return {it.code for it in check_source(SCRIPT.format(chosen=chosen), "train.py")} - {"CKPT501"}
