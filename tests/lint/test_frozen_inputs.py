"""Text models before transformers 5 whose embeddings alone are frozen: no reentrant layer gets a gradient."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.api import check_source as check_for

_LOAD = """
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertForSequenceClassification
from transformers import LlamaForCausalLM, Trainer, TrainingArguments

"""
_BERT = 'model = BertForSequenceClassification.from_pretrained("mine")\n'
_AUTO = 'model = AutoModelForSequenceClassification.from_pretrained("{}")\n'
_ENABLE = "model.gradient_checkpointing_enable()\n"
_PART = "for parameter in model.{}.parameters():\n    parameter.requires_grad = False\n"
_NAMED = "for name, parameter in model.named_parameters():\n    if {}:\n        parameter.requires_grad = False\n"
WRONG = {
    "a part": _BERT + _PART.format("bert.embeddings") + _ENABLE,
    "a part at once": _BERT + "model.bert.embeddings.requires_grad_(False)\n" + _ENABLE,
    "a part names the family": _AUTO.format("mine") + _PART.format("roberta.embeddings") + _ENABLE,
    "by name": _BERT + _NAMED.format('"embeddings" in name') + _ENABLE,
    "a name that names the family": _AUTO.format("mine")
    + _NAMED.format('name.startswith("bert.embeddings")')
    + _ENABLE,
    "by name in weights of the Hub": (
        _AUTO.format("distilbert-base-uncased") + _NAMED.format('"embeddings" in name') + _ENABLE
    ),
    "the first layers too": (
        _BERT
        + _PART.format("bert.embeddings")
        + "for layer in model.bert.encoder.layer[:6]:\n    layer.requires_grad_(False)\n"
        + _ENABLE
    ),
    "by the method that gives them": (
        'model = LlamaForCausalLM.from_pretrained("mine")\nmodel.get_input_embeddings().requires_grad_(False)\n'
        + _ENABLE
    ),
    "the weight": (
        'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")\n'
        "model.model.embed_tokens.weight.requires_grad = False\n" + _ENABLE
    ),
    "by a Trainer": (
        _BERT
        + _PART.format("bert.embeddings")
        + 'Trainer(model=model, args=TrainingArguments("out", gradient_checkpointing=True)).train()\n'
    ),
}
RIGHT = {
    "a hook": _BERT + _PART.format("bert.embeddings") + _ENABLE + "model.enable_input_require_grads()\n",
    "the other variant": (
        _BERT + _PART.format("bert.embeddings") + 'model.gradient_checkpointing_enable({"use_reentrant": False})\n'
    ),
    "all of the backbone": _BERT + _PART.format("bert") + _ENABLE,
    "the words alone": _BERT + _PART.format("bert.embeddings.word_embeddings") + _ENABLE,
    "the method gives the words alone": _BERT + "model.get_input_embeddings().requires_grad_(False)\n" + _ENABLE,
    "a family that is not known": _AUTO.format("mine") + _NAMED.format('"embeddings" in name') + _ENABLE,
    "what feeds every layer": (
        _AUTO.format("microsoft/deberta-v3-base") + _NAMED.format('"embeddings" in name') + _ENABLE
    ),
    "under a condition": (
        "def load(freeze):\n"
        + "".join(f"    {line}\n" for line in _BERT.splitlines())
        + "    if freeze:\n        model.bert.embeddings.requires_grad_(False)\n    model.gradient_checkpointing_enable()\n"
    ),
    "switched on again": (
        _BERT + _PART.format("bert.embeddings") + "model.bert.embeddings.requires_grad_(True)\n" + _ENABLE
    ),
}


def _found(code: str, transformers: str) -> list[str]:
    found = check_for(_LOAD + code, versions={"transformers": transformers})
    return [finding.code for finding in found if finding.code == "CKPT104"]


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_layers_behind_frozen_embeddings_are_found(code: str) -> None:
    assert _found(code, "==4.49.0") == ["CKPT104"]
    assert not [it for it in check_source(_LOAD + code) if it.code == "CKPT104"]  # 5.0 sees to it


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_layers_that_get_gradients_are_left_alone(code: str) -> None:
    assert not _found(code, "==4.49.0")
