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


OTHERS = """
import argparse
from types import SimpleNamespace
from typing import NamedTuple
from pydantic import BaseModel
from pydantic_settings import BaseSettings
from torch import nn
from torch.utils.checkpoint import checkpoint

class Tuple(NamedTuple):
    use_reentrant: bool = False
    determinism_check: str = DEFAULT

class Model(BaseModel):
    use_reentrant: bool = False
    determinism_check: str = DEFAULT

class FromEnvironment(BaseSettings):
    use_reentrant: bool = False
    determinism_check: str = DEFAULT

class Own:
    use_reentrant: bool = False
    determinism_check: str = DEFAULT
    def model_dump(self):
        return {"use_reentrant": False}

block = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
space = SimpleNamespace(use_reentrant=False, determinism_check=DEFAULT)
entries = {"use_reentrant": False, "determinism_check": DEFAULT, "debug": None}

def forward(x):
    return checkpoint(block, x, GIVEN)

forward(x)
"""
SAID = {
    "a named tuple": "**Tuple()._asdict()",
    "of pydantic": "**Model().model_dump()",
    "of older pydantic": "**Model().dict()",
    "a namespace": "**vars(space)",
    "entries that are set": "**{k: v for k, v in entries.items() if v is not None}",
    "entries without one": '**{name: held for name, held in entries.items() if name != "debug"}',
    "all entries": "**{k: v for k, v in entries.items()}",
}
OPEN = {
    "of the environment": "**FromEnvironment().model_dump()",
    "of its own": "**Own().model_dump()",
    "entries left out": '**{k: v for k, v in entries.items() if k == "use_reentrant"}',
    "entries left out by an open question": "**{k: v for k, v in entries.items() if wanted(k) or not v}",
}


@pytest.mark.parametrize("given", SAID.values(), ids=SAID)
def test_fields_and_entries_are_what_the_call_gets(given: str) -> None:
    text = OTHERS.replace("GIVEN", given)
    assert _codes(text.replace("DEFAULT", '"none"')) == ["CKPT124"]
    assert _codes(text.replace("DEFAULT", '"default"')) == []


@pytest.mark.parametrize("given", OPEN.values(), ids=OPEN)
def test_what_may_be_something_else_is_not_said(given: str) -> None:
    assert _codes(OTHERS.replace("GIVEN", given).replace("DEFAULT", '"none"')) == []


AFTERWARDS = """
from dataclasses import InitVar, dataclass, field
from torch import nn
from torch.utils.checkpoint import checkpoint

@dataclass
class Base:
    mode: str = "fast"
    determinism_check: str = "default"
    options: dict = field(default_factory=dict)

    def __post_init__(self):
        BODY

@dataclass
class Config(Base):
    depth: int = 4

block = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))

def forward(x, config):
    return checkpoint(block, x, use_reentrant=False, GIVEN)

forward(x, Config(ARGUMENTS))
"""
FINISHED = {
    "an attribute": ("self.determinism_check = 'none'", "determinism_check=config.determinism_check"),
    "under a condition": (
        "if self.mode == 'fast': self.determinism_check = 'none'",
        "determinism_check=config.determinism_check",
    ),
    "a choice": (
        "self.determinism_check = 'none' if self.mode == 'fast' else 'default'",
        "determinism_check=config.determinism_check",
    ),
    "a dict": (
        "self.options.setdefault('determinism_check', 'none' if self.mode == 'fast' else 'default')",
        "**config.options",
    ),
}


@pytest.mark.parametrize(("body", "given"), FINISHED.values(), ids=FINISHED)
def test_what_post_init_makes_of_the_fields_counts(body, given):
    text = AFTERWARDS.replace("BODY", body).replace("GIVEN", given)
    assert _codes(text.replace("ARGUMENTS", "")) == ["CKPT124"]
    if "mode" in body:
        assert _codes(text.replace("ARGUMENTS", 'mode="safe"')) == []
