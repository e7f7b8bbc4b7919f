"""A script's own class of training arguments, filled by its launch script: nothing but the defaults is added."""

from __future__ import annotations

import json

import pytest
from hf_ckpt.lint.api import check_paths

SCRIPT = """
from dataclasses import dataclass, field
from typing import Optional

import transformers


@dataclass
class Shared(transformers.TrainingArguments):
    cache_dir: Optional[str] = field(default=None)


@dataclass
class OwnArguments(Shared):
    model_max_length: int = field(default=2048)
{more}

def train(model):
    (args,) = transformers.HfArgumentParser((OwnArguments,)).parse_args_into_dataclasses()
    transformers.Trainer(model=model, args=args).train()
"""
SWITCHED = "    gradient_checkpointing: bool = field(default=True)\n"
WRITTEN = (
    "\n    def __post_init__(self):\n        super().__post_init__()\n        self.activation_checkpointing = True\n"
)
COMMAND = "deepspeed finetune.py --output_dir out --deepspeed zero2.json --bf16 True"


def codes(folder, more: str, command: str, launch: str = "train.sh") -> list[str]:
    (folder / "finetune.py").write_text(SCRIPT.format(more=more))
    (folder / "zero2.json").write_text(
        json.dumps({"zero_optimization": {"stage": 2}, "activation_checkpointing": {"cpu_checkpointing": True}})
    )
    (folder / launch).write_text(f"#!/bin/bash\n{command}\n")
    return [finding.code for finding in check_paths([str(folder)])]


@pytest.mark.parametrize("launch", ["train.sh", "train.sbatch", "train.slurm", "train.pbs", "train.zsh"])
def test_the_command_says_all_that_is_given(tmp_path, launch):
    assert codes(tmp_path, "", COMMAND, launch) == ["CKPT207"]


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ("", f"{COMMAND} --gradient_checkpointing True"),
        ("", f"{COMMAND} $@"),
        (SWITCHED, COMMAND),
        (WRITTEN, COMMAND),
    ],
)
def test_the_switch_may_come_from_the_command_or_the_class(tmp_path, more, command):
    assert codes(tmp_path, more, command) == []


def test_a_default_of_the_class_counts_until_the_command_gives_another(tmp_path):
    assert codes(tmp_path, SWITCHED, f"{COMMAND} --gradient_checkpointing False") == ["CKPT207"]


def test_a_finding_stands_at_the_argument_that_is_about_checkpointing(tmp_path):
    (tmp_path / "finetune.py").write_text(SCRIPT.format(more=""))
    lines = [
        *("torchrun --nproc_per_node 8", "finetune.py", "--output_dir out", "--ddp_find_unused_parameters True"),
        *("--gradient_checkpointing True", """--gradient_checkpointing_kwargs '{"use_reentrant": true}'"""),
    ]
    (tmp_path / "train.sh").write_text(" \\\n  ".join(lines) + "\n")
    assert [(it.code, it.span.line) for it in check_paths([str(tmp_path)])] == [("CKPT304", 5)]
