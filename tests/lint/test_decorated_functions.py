"""Functions with decorators of the program: what a call of them gives, where the decorator says that."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import functools
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

{decorator}
def load(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.activation_checkpointing_enable({{"use_reentrant": True}})
    return model

Trainer(load("gpt2"), TrainingArguments("out", activation_checkpointing=True)).train()
"""
REGISTERED = "KNOWN = []\n\ndef known(made):\n    KNOWN.append(made)\n    return made\n\n@known"
TIMED = """
def timed(made):
    @functools.wraps(made)
    def inner(*args, **kwargs):
        try:
            return made(*args, **kwargs)
        finally:
            print("loaded")
    return inner

@timed"""
OBJECT = """
class Known:
    def add(self, made):
        return made

KNOWN = Known()

@KNOWN.add"""
FRESH = """
def fresh(made):
    def inner(name):
        made(name)
        return AutoModelForCausalLM.from_pretrained(name)
    return inner

@fresh"""


@pytest.mark.parametrize("decorator", [REGISTERED, TIMED, OBJECT], ids=["registered", "timed", "a method"])
def test_the_result_is_followed(decorator: str) -> None:
    """The model that comes out is the one that was made inside."""
    assert [it.code for it in check_source(SCRIPT.format(decorator=decorator), "train.py")] == ["CKPT202"]


@pytest.mark.parametrize("decorator", [FRESH, "from elsewhere import known\n\n@known"], ids=["another", "unknown"])
def test_another_result_is_not(decorator: str) -> None:
    """A decorator that gives another model, or is not shown."""
    assert not check_source(SCRIPT.format(decorator=decorator), "train.py")
