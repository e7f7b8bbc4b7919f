"""`_set_gradient_checkpointing` as it was called before transformers 4.35, and what it does now."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
from functools import partial
import inspect
import torch
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel, BertPreTrainedModel

class Encoder(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.post_init()

    def forward(self, ids):
        return self.bert(ids).last_hidden_state

model = Encoder(BertConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
))
CALL
model.train()(torch.ones(1, 3, dtype=torch.long)).sum().backward()
"""
WRONG = [
    "model._set_gradient_checkpointing(model.bert, True)",
    "model.bert._set_gradient_checkpointing(model.bert.encoder, True)",
    "model._set_gradient_checkpointing(True, True)",
    "model._set_gradient_checkpointing(model.bert, gradient_checkpointing_func=True)",
    "model._set_gradient_checkpointing(model.bert, value=True)",
    "model.apply(partial(model._set_gradient_checkpointing, value=True))",
]
RIGHT = [
    "model._set_gradient_checkpointing()",
    "model._set_gradient_checkpointing(True)",
    "model._set_gradient_checkpointing(False, True)",
    "model._set_gradient_checkpointing(enable=True, gradient_checkpointing_func=partial(checkpoint, use_reentrant=False))",
    "model._set_gradient_checkpointing(True, True)\nmodel.gradient_checkpointing_enable()",
    "if 'value' in inspect.signature(model._set_gradient_checkpointing).parameters:\n"
    "    model.apply(partial(model._set_gradient_checkpointing, value=True))",
]


def found(call: str) -> list[str]:
    return [it.message for it in check_source(SCRIPT.replace("CALL", call), "train.py") if it.code == "CKPT308"]


@pytest.mark.parametrize("call", WRONG)
def test_it_raises(call):
    assert len(found(call)) == 1
    # A part of the model that is put into itself has no end.
    with pytest.raises((TypeError, RecursionError), match=r"not callable|argument 'value'|maximum recursion"):
        exec(SCRIPT.replace("CALL", call), {})


@pytest.mark.parametrize("call", RIGHT)
def test_it_is_right(call):
    assert found(call) == []
    exec(SCRIPT.replace("CALL", call), {})


def test_a_method_of_the_old_kind_that_a_class_has_is_right():
    own = "    def _set_gradient_checkpointing(self, module, value=False):\n        pass\n\n    def forward(self, ids"
    text = SCRIPT.replace("    def forward(self, ids", own).replace("CALL", WRONG[0])
    assert [it.code for it in check_source(text, "train.py") if it.code == "CKPT308"] == []
    exec(text, {})
