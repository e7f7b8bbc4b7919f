"""`if hasattr(model, "gradient_checkpointing_enable"):` is no condition for what certainly has the method."""

from __future__ import annotations

import pytest
from hf_ckpt.lint import check_source

SCRIPT = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def train(name, batches, optimizer, prompt, given):
    loaded = AutoModelForCausalLM.from_pretrained(name)
    model = {model}
    if hasattr({asked}):
        model.gradient_checkpointing_enable()
    model.train()
    for step, batch in enumerate(batches):
        model(**batch).loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(model.generate(**prompt, max_new_tokens=20))
"""
METHOD = 'model, "gradient_checkpointing_enable"'


def codes(model: str, asked: str) -> list[str]:
    return [finding.code for finding in check_source(SCRIPT.format(model=model, asked=asked))]


@pytest.mark.parametrize(
    "model",
    ["loaded", 'loaded.to("cuda")', "get_peft_model(loaded, LoraConfig())", "AutoModelForCausalLM.from_config(name)"],
)
def test_a_model_of_transformers_has_it(model: str) -> None:
    assert codes(model, METHOD) == ["CKPT112"]


@pytest.mark.parametrize(
    ("model", "asked"),
    [("loaded", 'model, "set_gradient_checkpointing"'), ("loaded", 'given, "gradient_checkpointing_enable"')],
)
def test_what_others_have_stays_open(model: str, asked: str) -> None:
    assert codes(model, asked) == []
