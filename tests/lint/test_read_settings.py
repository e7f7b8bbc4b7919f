"""Settings that a script reads from a file which it names itself are those of its run."""

from __future__ import annotations

import json

import pytest
from hf_ckpt.lint.api import check_paths

SCRIPT = """
import argparse
import json
import os
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from transformers import Trainer, TrainingArguments

HERE = os.path.dirname(os.path.abspath(__file__))

def load(path="settings.yaml"):
    with open(path) as file:
        return yaml.safe_load(file)

def train(model):
    LINES
    Trainer(model, args).train()
"""
YAML = """
model: base
training:
  output_dir: out
  gradient_checkpointing: SWITCH
  gradient_checkpointing_kwargs:
    use_reentrant: false
"""
GIVEN = "args = TrainingArguments(**settings['training'])"


def codes(folder, lines: str, switch: str = "false") -> set[str]:
    (folder / "train.py").write_text(SCRIPT.replace("LINES", lines.replace("\n", "\n    ")))
    (folder / "settings.yaml").write_text(YAML.replace("SWITCH", switch))
    held = {"output_dir": "out", "gradient_checkpointing_kwargs": {"use_reentrant": False}}
    (folder / "args.json").write_text(json.dumps(held))
    return {finding.code for finding in check_paths([str(folder)])}


@pytest.mark.parametrize(
    "lines",
    [
        f"settings = load()\n{GIVEN}",
        f"settings = yaml.safe_load(Path('settings.yaml').read_text())\n{GIVEN}",
        f"settings = yaml.load(open('settings.yaml'), Loader=yaml.SafeLoader)\n{GIVEN}",
        f"settings = yaml.safe_load((Path(__file__).parent / 'settings.yaml').read_text())\n{GIVEN}",
        f"settings = yaml.safe_load(open(os.path.join(HERE, 'settings.yaml')))\n{GIVEN}",
        f"settings = yaml.safe_load(open(f'{{HERE}}/settings.yaml'))\n{GIVEN}",
        "settings = OmegaConf.load('settings.yaml')\nargs = TrainingArguments(**settings.training)",
        "args = TrainingArguments(**json.load(open('args.json')))",
    ],
)
def test_a_file_that_the_script_names(tmp_path, lines):
    assert codes(tmp_path, lines) == {"CKPT215"}


@pytest.mark.parametrize(
    "lines",
    [
        f"settings = load()\nsettings['training']['gradient_checkpointing'] = True\n{GIVEN}",
        f"settings = load()\nsettings['training'].update(gradient_checkpointing=True)\n{GIVEN}",
        "settings = load()\nargs = TrainingArguments(**{**settings['training'], 'gradient_checkpointing': True})",
        f"parser = argparse.ArgumentParser()\nparser.add_argument('--config', default='settings.yaml')\n"
        f"settings = load(parser.parse_args().config)\n{GIVEN}",
        "settings = OmegaConf.merge(OmegaConf.load('settings.yaml'), OmegaConf.from_cli())\n"
        "args = TrainingArguments(**settings.training)",
    ],
)
def test_what_the_program_adds_counts_too(tmp_path, lines):
    assert codes(tmp_path, lines) == set()


@pytest.mark.parametrize("switch", ["true", "${switch}"])
def test_what_the_file_says_counts(tmp_path, switch):
    assert codes(tmp_path, f"settings = load()\n{GIVEN}", switch) == set()


DEEPSPEED = """
import os
from pathlib import Path
from transformers import Trainer, TrainingArguments

HERE = Path(__file__).resolve().parent

def train(model):
    Trainer(model, TrainingArguments("out", deepspeed=FILE)).train()
"""


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ('str(HERE / "zero3.json")', {"CKPT207"}),
        ('os.path.join(os.path.dirname(__file__), "zero3.json")', {"CKPT207"}),
        ('f"{HERE}/zero3.json"', {"CKPT207"}),
        ('HERE.joinpath("zero3.json").as_posix()', {"CKPT207"}),
        ('str(HERE / "zero2.json")', set()),
        ("str(HERE / os.environ['ZERO'])", set()),
    ],
)
def test_a_file_for_deepspeed_by_its_path(tmp_path, file, expected):
    (tmp_path / "zero3.json").write_text(
        json.dumps({"zero_optimization": {"stage": 3}, "activation_checkpointing": {}})
    )
    (tmp_path / "train.py").write_text(DEEPSPEED.replace("FILE", file))
    assert {finding.code for finding in check_paths([str(tmp_path)])} == expected
