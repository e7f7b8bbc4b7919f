"""Objects of the program that are called: their `__call__` is followed as a function is."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
import torch
from peft import prepare_model_for_kbit_training
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

class Base:
    def __init__(self, bits):
        self.bits = bits

    def __call__(self, *args):
        CALLED

class Maker(Base):
    pass

RUN
"""
PREPARES = """model = AutoModelForCausalLM.from_pretrained("x", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
        return prepare_model_for_kbit_training(modelGIVEN)"""
TRAINS = "model = Maker(4)()\nmodel.train()\nfor batch in loader:\n    model(**batch).loss.backward()\n"
VARIANT = ', gradient_checkpointing_kwargs={"use_reentrant": False}'
RUNS = "checkpoint(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), args[0], use_reentrant=True)"
GIVES = "for _ in range(3):\n    Maker(1)(TENSOR).mean().backward()\n"


def _found(called: str, run: str) -> list[str]:
    return [it.code for it in check_source(SCRIPT.replace("CALLED", called).replace("RUN", run), "train.py")]


def test_a_maker_that_is_called_gives_the_model_that_is_trained():
    assert _found(PREPARES.replace("GIVEN", ""), TRAINS) == ["CKPT103"]
    assert _found(PREPARES.replace("GIVEN", VARIANT), TRAINS) == []


@pytest.mark.parametrize(
    ("tensor", "found"),
    [("torch.rand(4)", ["CKPT104"]), ("torch.rand(4, requires_grad=True)", []), ("nn.Linear(4, 4)(batch)", [])],
)
def test_what_the_object_is_given_goes_to_its_body(tensor, found):
    assert _found(f"return {RUNS}", GIVES.replace("TENSOR", tensor)) == found


def test_a_module_runs_its_forward():
    text = SCRIPT.replace("class Base:", "class Base(nn.Module):").replace("__call__(self, *args)", "forward(self, x)")
    text = text.replace("self.bits = bits", "super().__init__()")
    text = text.replace("CALLED", f"return {RUNS}").replace("args[0]", "x")
    text = text.replace("RUN", GIVES.replace("TENSOR", "torch.rand(4)"))
    assert [it.code for it in check_source(text, "train.py")] == ["CKPT104"]
