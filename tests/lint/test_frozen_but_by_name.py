"""A loop over names that freezes all but some: a head is no part of the layers, adapters are."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
from transformers import PreTrainedModel

def prepare(model: PreTrainedModel):
    for name, parameter in model.named_parameters():
        if TEST:
            parameter.requires_grad = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model
"""


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('not name.startswith("classifier")', ["CKPT405"]),
        ('"classifier" not in name', ["CKPT405"]),
        ('not name.startswith("score")', ["CKPT405"]),
        # A part of each layer trains.
        ('"intermediate" not in name and "classifier" not in name', []),
        ('"lora_" not in name', []),
        ('"adapter" not in name', []),
        ('not name.endswith(".ia3")', []),
    ],
)
def test_what_is_left_out(test, expected):
    found = check_source(SCRIPT.replace("TEST", test), "train.py")
    assert [finding.code for finding in found if finding.code != "CKPT501"] == expected
