"""A question about the whole program is asked of every file of it that was read."""

from __future__ import annotations

import textwrap

import pytest
from command import ckpt_lint

ENTRY = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from trainer import main
from transformers import AutoModel

if __name__ == "__main__":
    main()
"""
CACHE_OFF = """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def main():
    model = LlamaForCausalLM.from_pretrained("base").train()
    SWITCH
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for ids in (1, 2):
        model(input_ids=ids, labels=ids).loss.backward()
"""
SUPPORT_PATCHED = """
from transformers import AutoModel
from transformers.models.mpnet import modeling_mpnet

def main():
    PATCH
    AutoModel.from_pretrained("microsoft/mpnet-base").gradient_checkpointing_enable()
"""


def codes(tmp_path, trainer: str) -> list[str]:
    (tmp_path / "trainer.py").write_text(textwrap.dedent(trainer))
    (tmp_path / "run.py").write_text(ENTRY)
    printed = ckpt_lint("check", "--isolated", "--no-cache", "--output-format", "concise", ".", cwd=tmp_path)
    return [word.rstrip(":") for word in printed.stdout.split() if word.startswith("CKPT")]


@pytest.mark.parametrize(
    ("switch", "expected"), [("model.config.use_cache = False", []), ("model.config.bos_token_id = 1", ["CKPT111"])]
)
def test_what_an_imported_module_switches_off(tmp_path, switch, expected):
    assert codes(tmp_path, CACHE_OFF.replace("SWITCH", switch)) == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [("modeling_mpnet.MPNetPreTrainedModel.supports_gradient_checkpointing = True", []), ("pass", ["CKPT308"])],
)
def test_what_an_imported_module_patches(tmp_path, patch, expected):
    assert codes(tmp_path, SUPPORT_PATCHED.replace("PATCH", patch)) == expected
