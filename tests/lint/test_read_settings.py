"""Settings that a script reads from a file which it names itself are those of its run."""

from __future__ import annotations

import json

import pytest
from hf_ckpt.lint.api import check_paths

SCRIPT = """
import argparse
import json
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from transformers import Trainer, TrainingArguments

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
