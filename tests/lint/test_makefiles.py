"""Makefiles start runs as launch scripts do: their recipes are commands of the shell."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.api import check_paths

SCRIPT = """
from trl import SFTConfig, SFTTrainer

SFTTrainer(model="Qwen/Qwen3-4B", args=SFTConfig(output_dir="out"{given}), train_dataset=[]).train()
"""
CONFIG = """
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_activation_checkpointing: true
"""
ONE_LINE = "train: sft.py\n\taccelerate launch --config_file fsdp.yaml sft.py\n\nclean:\n\t-rm -rf out\n"
TWO_LINES = "train:\n\t@CUDA_VISIBLE_DEVICES=0 accelerate launch \\\n\t  --config_file fsdp.yaml sft.py\n"
OF_A_VARIABLE = "CONFIG = fsdp.yaml\n\ntrain:\n\taccelerate launch --config_file $(CONFIG) sft.py\n"
ANOTHER = "train:\n\tpython sft.py\n"


def codes(folder, makefile: str, given: str = "") -> list[str]:
    (folder / "sft.py").write_text(SCRIPT.format(given=given))
    (folder / "fsdp.yaml").write_text(CONFIG)
    (folder / "Makefile").write_text(makefile)
    return [finding.code for finding in check_paths([str(folder)])]


@pytest.mark.parametrize("makefile", [ONE_LINE, TWO_LINES, OF_A_VARIABLE])
def test_a_recipe_starts_the_script_with_its_configuration(tmp_path, makefile):
    assert codes(tmp_path, makefile) == ["CKPT303"]
    assert codes(tmp_path, makefile, ", gradient_checkpointing=False") == []


@pytest.mark.parametrize("makefile", [ANOTHER, "", "train:\n\tcp fsdp.yaml other.yaml\n"])
def test_what_no_recipe_says_is_open(tmp_path, makefile):
    assert codes(tmp_path, makefile) == []
