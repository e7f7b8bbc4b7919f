"""Models of the program's own classes that a method of a library builds: `Mine.from_pretrained(path)`."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from transformers import GPT2LMHeadModel, Qwen2PreTrainedModel
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

class Encoder(Qwen2PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Qwen2DecoderLayer(config, i) for i in range(config.num_hidden_layers)])

    def forward(self, ids):
        hidden = self.embed(ids)
        for layer in self.layers:
            hidden = layer(hidden_states=hidden)
        return hidden.mean(1)

class Writer(GPT2LMHeadModel):
    def title(self, ids):
        return self.generate(ids, max_new_tokens=8)

class Made:
    @classmethod
    def from_pretrained(cls, path):
        return GPT2LMHeadModel.from_pretrained(path)

"""
_STEP = "for ids in loader:\n    model(ids).square().mean().backward()\n    optimizer.step()\n"
WRONG = {
    "only generates": (
        'model = Writer.from_pretrained("mine")\nmodel.activation_checkpointing_enable()\nids = model.generate(prompt)\n',
        "CKPT211",
    ),
    "keywords of layers": (
        'model = Encoder.from_pretrained("mine").to("cuda")\n'
        'model.activation_checkpointing_enable({"use_reentrant": True})\nmodel.train()\n' + _STEP,
        "CKPT118",
    ),
    "generation in train mode": (
        'model = Writer.from_pretrained("mine")\nmodel.activation_checkpointing_enable()\nmodel.train()\n'
        "ids = model.generate(prompt)\n",
        "CKPT112",
    ),
}
RIGHT = {
    "the other variant": (
        'model = Encoder.from_pretrained("mine")\nmodel.activation_checkpointing_enable()\nmodel.train()\n' + _STEP
    ),
    "a loader of its own": 'model = Made.from_pretrained("mine")\nids = model.generate(prompt)\n',
    "more than the model": (
        'model, info = Encoder.from_pretrained("mine", output_loading_info=True)\n'
        'model.activation_checkpointing_enable({"use_reentrant": False})\nmodel.train()\n' + _STEP
    ),
}


@pytest.mark.parametrize(("code", "rule"), WRONG.values(), ids=WRONG)
def test_objects_that_a_loader_builds_are_those_of_the_class(code: str, rule: str) -> None:
    assert [finding.code for finding in check_source(HEAD + code)] == [rule]


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_right_programs_with_loaded_models_are_left_alone(code: str) -> None:
    assert not check_source(HEAD + code)
