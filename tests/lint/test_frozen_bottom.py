"""Embeddings and first layers that are frozen, under checkpointing: CKPT405 where the number of layers is certain."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_HEAD = """\
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2LMHeadModel
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
llama = AutoModelForCausalLM.from_pretrained("base")
gpt = GPT2LMHeadModel.from_pretrained("gpt2")

"""
_ON = 'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'
WRONG = {
    "parameters of a slice": """
        for p in model.bert.embeddings.parameters():
            p.requires_grad = False
        for layer in model.bert.encoder.layer[0:6]:
            for p in layer.parameters():
                p.requires_grad = False
    """,
    "all but the last": """
        def freeze(net, keep=2):
            net.bert.embeddings.requires_grad_(False)
            for layer in net.bert.encoder.layer[:-keep]:
                layer.requires_grad_(False)
        freeze(model)
    """,
    "a number that is given": """
        COUNT = 6
        def freeze(net, count):
            net.bert.embeddings.requires_grad_(False)
            for layer in net.bert.encoder.layer[:count]:
                layer.requires_grad_(False)
        freeze(model, count=COUNT)
    """,
    "a range": """
        model.bert.embeddings.requires_grad_(False)
        for i in range(6):
            for p in model.bert.encoder.layer[i].parameters():
                p.requires_grad = False
    """,
    "a decoder": """
        llama.model.embed_tokens.requires_grad_(False)
        for layer in llama.model.layers[:8]:
            layer.requires_grad_(False)
        llama.lm_head.requires_grad_(True)
        ENABLE(llama)
    """,
    "two embeddings": """
        for part in (gpt.transformer.wte, gpt.transformer.wpe):
            part.requires_grad_(False)
        gpt.transformer.wte.requires_grad_(False)
        gpt.transformer.wpe.requires_grad_(False)
        for block in gpt.transformer.h[:6]:
            block.requires_grad_(False)
        ENABLE(gpt)
    """,
}
RIGHT = {
    "the embeddings train": """
        for layer in model.bert.encoder.layer[:6]:
            layer.requires_grad_(False)
    """,
    "a part of the embeddings trains": """
        model.bert.embeddings.word_embeddings.requires_grad_(False)
        for layer in model.bert.encoder.layer[:6]:
            layer.requires_grad_(False)
    """,
    "positions train": """
        gpt.transformer.wte.requires_grad_(False)
        for block in gpt.transformer.h[:6]:
            block.requires_grad_(False)
        ENABLE(gpt)
    """,
    "the last layers": """
        model.bert.embeddings.requires_grad_(False)
        for layer in model.bert.encoder.layer[6:]:
            layer.requires_grad_(False)
    """,
    "every second layer": """
        model.bert.embeddings.requires_grad_(False)
        for layer in model.bert.encoder.layer[:8:2]:
            layer.requires_grad_(False)
    """,
    "a number that is open": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--freeze", type=int, default=6)
        args = parser.parse_args()
        model.bert.embeddings.requires_grad_(False)
        for layer in model.bert.encoder.layer[: args.freeze]:
            layer.requires_grad_(False)
    """,
    "none": """
        def freeze(net, count=0):
            net.bert.embeddings.requires_grad_(False)
            for layer in net.bert.encoder.layer[:count]:
                layer.requires_grad_(False)
        freeze(model)
    """,
    "a condition": """
        model.bert.embeddings.requires_grad_(False)
        if freeze_layers:
            for layer in model.bert.encoder.layer[:6]:
                layer.requires_grad_(False)
    """,
    "thawed later": """
        model.bert.embeddings.requires_grad_(False)
        for layer in model.bert.encoder.layer[:6]:
            layer.requires_grad_(False)
        for p in model.parameters():
            p.requires_grad = True
    """,
    "without the hook": """
        model.bert.embeddings.requires_grad_(False)
        for layer in model.bert.encoder.layer[:6]:
            layer.requires_grad_(False)
        ENABLE(model)
        model.disable_input_require_grads()
    """,
    "the reentrant variant": """
        model.bert.embeddings.requires_grad_(False)
        for layer in model.bert.encoder.layer[:6]:
            layer.requires_grad_(False)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    """,
    "another model": """
        llama.model.embed_tokens.requires_grad_(False)
        for layer in llama.model.layers[:6]:
            layer.requires_grad_(False)
    """,
}


def _found(code):
    code = textwrap.dedent(code)
    for name in ("model", "llama", "gpt"):
        code = code.replace(f"ENABLE({name})", _ON.replace("model.", f"{name}.", 1))
    return [finding.code for finding in check_source(_HEAD + code + ("" if "checkpointing_enable" in code else _ON))]


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG.keys())
def test_a_frozen_bottom_is_found(code):
    assert "CKPT405" in _found(code)


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT.keys())
def test_what_may_train_below_is_not(code):
    assert "CKPT405" not in _found(code)
