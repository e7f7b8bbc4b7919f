"""Adapters behind the wrappers that accelerate puts into a model: which way through the program saves one of them."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import argparse
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM

def plugin(policy="transformer_based_wrap"):
    return FullyShardedDataParallelPlugin(fsdp_version={version}, auto_wrap_policy=policy, {wrap})

def save(accelerator, model):
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained("lora")

def main(args):
    accelerator = Accelerator(fsdp_plugin={plugin})
    model = AutoModelForCausalLM.from_pretrained("base", use_cache=False)
    {attach}
    opt = torch.optim.AdamW(model.parameters())
    {prepare}
    for batch in loader:
        accelerator.backward(model(**batch).loss)
    {save}

if __name__ == "__main__":
    main(argparse.ArgumentParser().parse_args())
"""
PARTS = {
    "version": "2",
    "wrap": "activation_checkpointing=True",
    "plugin": "plugin()",
    "attach": "model = get_peft_model(model, LoraConfig(lora_dropout=0.0))",
    "prepare": "model, opt = accelerator.prepare(model, opt)",
    "save": "accelerator.unwrap_model(model).save_pretrained('lora')",
}
EMPTY = (
    {},
    {"version": "1"},
    {"wrap": "activation_checkpointing=bool(policy)"},
    {"plugin": "plugin('TRANSFORMER_BASED_WRAP')"},
    {"plugin": "plugin(policy=transformer_auto_wrap_policy)"},
    {"wrap": "**{'activation_checkpointing': True}"},
    {"attach": "config = LoraConfig()\n    peft_model = get_peft_model(model, config)\n    model = peft_model.train()"},
    {"prepare": "opt, model = accelerator.prepare(opt, model)"},
    {"prepare": "model = accelerator.prepare(model)"},
    {"save": "save(accelerator, model)"},
    {"save": "model.save_pretrained('lora', state_dict=accelerator.get_state_dict(model))"},
    {"save": "unwrapped = accelerator.unwrap_model(model)\n    unwrapped.save_pretrained('lora')"},
)
WHOLE = (
    {"wrap": "activation_checkpointing=False"},
    {"wrap": "limit_all_gathers=True"},
    {"wrap": "activation_checkpointing=torch.cuda.is_available()"},
    {"plugin": "plugin('no_wrap')"},
    {"plugin": "plugin('size_based_wrap')"},
    {"plugin": "plugin(None)"},
    {"plugin": "plugin(args.policy)"},
    {"plugin": "None"},
    {"attach": "pass"},
    {"attach": "pass", "save": "get_peft_model(model, LoraConfig()).save_pretrained('lora')"},
    {"attach": "if args.lora:\n        model = get_peft_model(model, LoraConfig())"},
    {"prepare": "opt = accelerator.prepare(opt)"},
    {"prepare": "accelerator = Accelerator()\n    model, opt = accelerator.prepare(model, opt)"},
    {"prepare": "model.save_pretrained('start')\n    model = accelerator.prepare(model)", "save": "pass"},
    {"save": "accelerator.save_state('out')"},
    {"save": "torch.save(accelerator.get_state_dict(model), 'model.pt')"},
)


def _codes(parts: dict[str, str]) -> list[str]:
    return [finding.code for finding in check_source(SCRIPT.format(**PARTS | parts), "train.py")]


@pytest.mark.parametrize("parts", EMPTY, ids=str)
def test_an_adapter_that_is_saved_through_wrappers(parts):
    assert _codes(parts) == ["CKPT110"]


@pytest.mark.parametrize("parts", WHOLE, ids=str)
def test_an_adapter_that_is_saved_whole_or_may_be(parts):
    assert _codes(parts) == []
