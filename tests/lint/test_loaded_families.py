"""Models that are loaded from well-known weights: what their configuration and their stacks say."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_FSDP2 = """\
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, GPT2LMHeadModel, OPTForCausalLM

accelerator = Accelerator(
    fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)  # plugin
)
"""
_DROPS = {
    "an Auto class": 'model = AutoModelForCausalLM.from_pretrained("gpt2")',
    "a keyword": 'model = OPTForCausalLM.from_pretrained(pretrained_model_name_or_path="facebook/opt-1.3b")',
    "one dropout of two off": 'model = GPT2LMHeadModel.from_pretrained("gpt2-xl", attn_pdrop=0.0)',
    "an encoder with a decoder": 'model = AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-base")',
}
_DOES_NOT_DROP = {
    "both off": 'model = GPT2LMHeadModel.from_pretrained("gpt2-xl", attn_pdrop=0.0, resid_pdrop=0)',
    "a family without": 'model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")',
    "a folder": 'model = GPT2LMHeadModel.from_pretrained("out/best")',
    "a configuration of its own": 'model = GPT2LMHeadModel.from_pretrained("gpt2", config=config)',
    "keywords that are open": 'model = GPT2LMHeadModel.from_pretrained("gpt2", **overrides)',
    "code of the repository": 'model = AutoModelForCausalLM.from_pretrained("gpt2", trust_remote_code=remote)',
    "taken out by hand": (
        'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
        "for part in model.modules():\n    if isinstance(part, nn.Dropout):\n        part.p = 0.0"
    ),
    "taken out by a helper": 'model = AutoModelForCausalLM.from_pretrained("gpt2")\ndisable_dropout_in_model(model)',
}
_LOAD = "from transformers import AutoModelForSeq2SeqLM, AutoModel, BartForConditionalGeneration, T5Model\n"
_FLAGS = {
    "below the model": (
        'model = BartForConditionalGeneration.from_pretrained("b")\n'
        "model.model.decoder.gradient_checkpointing = True  # here"
    ),
    "by the weights": (
        'model = AutoModelForSeq2SeqLM.from_pretrained("t5-small")\nmodel.encoder.gradient_checkpointing = True  # here'
    ),
}
_RIGHT_FLAGS = {
    "a family that is not known": "model = AutoModel.from_pretrained(name)\nmodel.encoder.gradient_checkpointing = True",
    "off": 'model = T5Model.from_pretrained("t5-small")\nmodel.encoder.gradient_checkpointing = False',
    "a flag that is open": 'model = T5Model.from_pretrained("t5-small")\nmodel.encoder.gradient_checkpointing = flag',
    "enabled for the stack": (
        'model = T5Model.from_pretrained("t5-small")\nmodel.encoder.gradient_checkpointing = True\n'
        "model.encoder.gradient_checkpointing_enable()"
    ),
    "by the method behind it": (
        'model = T5Model.from_pretrained("t5-small")\nmodel.encoder.gradient_checkpointing = True\n'
        "model._set_gradient_checkpointing(True)"
    ),
    "of a part that replaces the stack": (
        'model = T5Model.from_pretrained("t5-small")\nmodel.encoder = Mine()\n'
        "model.encoder.gradient_checkpointing = True"
    ),
}


def _found(text: str, code: str) -> list[int]:
    return [finding.span.line for finding in check_source(textwrap.dedent(text)) if finding.code == code]


@pytest.mark.parametrize("name", _DROPS)
def test_dropout_of_weights_under_fsdp2(name: str) -> None:
    assert _found(f"{_FSDP2}{_DROPS[name]}\nmodel = accelerator.prepare(model)\nmodel.train()\n", "CKPT109")


@pytest.mark.parametrize("name", _DOES_NOT_DROP)
def test_weights_that_do_not_drop_under_fsdp2(name: str) -> None:
    assert not _found(f"{_FSDP2}{_DOES_NOT_DROP[name]}\nmodel = accelerator.prepare(model)\nmodel.train()\n", "CKPT109")


@pytest.mark.parametrize("switch", ["", "model.eval()", "if training:\n    model.train()", "model.train(mode)"])
def test_weights_that_are_not_surely_in_train_mode(switch: str) -> None:
    model = 'model = accelerator.prepare(GPT2LMHeadModel.from_pretrained("gpt2"))'
    assert not _found(f"{_FSDP2}{model}\n{switch}\n", "CKPT109")


@pytest.mark.parametrize("name", _FLAGS)
def test_flag_of_a_stack(name: str) -> None:
    text = _LOAD + _FLAGS[name]
    rows = [row for row, line in enumerate(text.splitlines(), start=1) if line.endswith("# here")]
    assert _found(text, "CKPT205") == rows


@pytest.mark.parametrize("name", _RIGHT_FLAGS)
def test_flag_of_a_stack_that_is_right(name: str) -> None:
    assert not _found(_LOAD + _RIGHT_FLAGS[name], "CKPT205")
