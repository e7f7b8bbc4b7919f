"""What `prepare_model_for_kbit_training` turns on, in a loop with DDP that looks for unused parameters."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_CODE = """\
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def main(rank, batches, args):
    model = AutoModelForCausalLM.from_pretrained("base", LOADED)
    PREPARED
    model = get_peft_model(model, LoraConfig(r=8)).train()
    model = DistributedDataParallel(model, device_ids=[rank], OPTIONS)
    for batch in batches:
        model(**batch).loss.backward()
"""
_LOADED = "quantization_config=BitsAndBytesConfig(load_in_4bit=True)"
_PREPARED = "model = prepare_model_for_kbit_training(model)"
_OPTIONS = "find_unused_parameters=True"


def _found(loaded=_LOADED, prepared=_PREPARED, options=_OPTIONS):
    code = _CODE.replace("LOADED", loaded).replace("OPTIONS", options)
    code = code.replace("PREPARED", textwrap.indent(prepared, "    ").lstrip())
    return [(finding.code, finding.span.line - code.count("\n")) for finding in check_source(code)]


@pytest.mark.parametrize(
    "prepared",
    [
        _PREPARED,
        "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)",
        'model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": True})',
        "prepare_model_for_kbit_training(model)",
        "model = prepare_model_for_kbit_training(model, True, {})",
    ],
)
def test_the_reentrant_variant_is_found(prepared):
    assert ("CKPT304", -2) in _found(prepared=prepared)


@pytest.mark.parametrize(
    "prepared",
    [
        'model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})',
        "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)",
        "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=args.checkpoint)",
        "model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs=args.kwargs)",
        "if args.train:\n    model = prepare_model_for_kbit_training(model)",
        f"{_PREPARED}\nmodel.gradient_checkpointing_disable()",
        f'{_PREPARED}\nmodel.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{"use_reentrant": False}})',
    ],
)
def test_another_preparation_is_not(prepared):
    assert not any(code == "CKPT304" for code, _ in _found(prepared=prepared))


@pytest.mark.parametrize("options", ["gradient_as_bucket_view=True", "static_graph=True, find_unused_parameters=True"])
def test_other_ways_to_wrap_are_not(options):
    assert not any(code == "CKPT304" for code, _ in _found(options=options))


def test_a_flag_of_ddp_is_open():
    assert not any(code == "CKPT304" for code, _ in _found(options="find_unused_parameters=args.find"))


@pytest.mark.parametrize("loaded", ["dtype=torch.bfloat16", "load_in_4bit=args.quantize"])
def test_a_model_that_may_be_whole_is_not(loaded):
    assert not any(code == "CKPT304" for code, _ in _found(loaded=loaded))
