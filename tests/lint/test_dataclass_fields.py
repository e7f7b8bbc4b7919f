"""What a dataclass of the program holds where it is made into a mapping."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """
from dataclasses import InitVar, asdict, dataclass, field
from typing import ClassVar
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, HfArgumentParser

@dataclass
class Memory:
    use_reentrant: bool = False
    determinism_check: str = DEFAULT

@dataclass
class Config:
    kind: ClassVar[str] = "none"
    depth: int = 4
    memory: Memory = field(default_factory=Memory)

block = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))

def forward(x, config):
    return checkpoint(block, x, GIVEN)

forward(x, MADE)
"""
GIVEN = {
    "a dict": "**asdict(config.memory)",
    "an inner dict": '**asdict(config)["memory"]',
    "its attributes": "**vars(config.memory)",
    "its attributes by name": "**config.memory.__dict__",
    "a copy": "**dict(vars(config.memory))",
    "one field": "use_reentrant=False, determinism_check=config.memory.determinism_check",
}


def _codes(text: str) -> list[str]:
    return [found.code for found in check_source(text, "train.py")]


def _found(default: str, given: str, made: str) -> list[str]:
    return _codes(SCRIPT.replace("DEFAULT", default).replace("GIVEN", given).replace("MADE", made))


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_the_fields_are_read(given):
    assert _found('"none"', given, "Config()") == ["CKPT124"]
    assert _found('"default"', given, "Config()") == []


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_the_constructor_was_given_counts(given):
    assert _found('"none"', given, 'Config(memory=Memory(determinism_check="default"))') == []
    assert _found('"default"', given, 'Config(memory=Memory(determinism_check="none"))') == ["CKPT124"]


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_a_parser_fills_stays_open(given):
    assert _found('"none"', given, "HfArgumentParser(Config).parse_args_into_dataclasses()[0]") == []


def test_a_dict_of_fields_lacks_what_the_class_lacks():
    enabled = 'AutoModelForCausalLM.from_pretrained("x").gradient_checkpointing_enable(asdict(config.memory))'
    text = SCRIPT.replace("return checkpoint(block, x, GIVEN)", enabled)
    text = text.replace("DEFAULT", '"default"').replace("MADE", "Config()")
    assert "CKPT102" not in _codes(text)
    assert "CKPT102" in _codes(text.replace("    use_reentrant: bool = False\n", ""))
    assert "CKPT102" in _codes(text.replace("use_reentrant: bool", "use_reentrant: InitVar[bool]"))
