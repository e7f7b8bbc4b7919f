"""Variables of the environment that a script sets from texts: whichever way, FSDP is set up with checkpointing."""

from __future__ import annotations

import os

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import os
from transformers import TrainingArguments

{0}
args = TrainingArguments("out", gradient_checkpointing=True)
"""
PAIRS = '("ACCELERATE_USE_FSDP=true", "FSDP_ACTIVATION_CHECKPOINTING=true")'
WAYS = {
    "split": f"""\
for pair in {PAIRS}:
    name, value = pair.split("=")
    os.environ[name] = value
""",
    "partition": f"""\
SETTINGS = [*{PAIRS}]
for line in SETTINGS:
    name, _, value = line.partition("=")
    os.environ.setdefault(name, value)
""",
    "lines": """\
SETTINGS = '''
ACCELERATE_USE_FSDP=true
FSDP_ACTIVATION_CHECKPOINTING=true
'''
for line in SETTINGS.strip().splitlines():
    name, value = line.split("=", 1)
    os.environ[name] = value
""",
    "dict": f'os.environ.update(dict(pair.split("=") for pair in {PAIRS}))',
    "pairs": f'os.environ.update(pair.split("=") for pair in {PAIRS})',
    "helper": f"""\
def export(*pairs):
    for pair in pairs:
        os.environ.update([pair.split("=")])

export(*{PAIRS})
""",
}


def codes(setup: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", setup))}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_set(way, monkeypatch):
    assert "CKPT303" in codes(WAYS[way])
    for name in ("ACCELERATE_USE_FSDP", "FSDP_ACTIVATION_CHECKPOINTING"):
        monkeypatch.setenv(name, "false")
        if way == "partition":
            monkeypatch.delenv(name)
    exec(WAYS[way], {"os": os})
    assert os.environ["FSDP_ACTIVATION_CHECKPOINTING"] == os.environ["ACCELERATE_USE_FSDP"] == "true"
    for name in ("ACCELERATE_USE_FSDP", "FSDP_ACTIVATION_CHECKPOINTING"):
        monkeypatch.delenv(name)


@pytest.mark.parametrize("way", WAYS)
def test_something_else_is_set(way):
    assert "CKPT303" not in codes(WAYS[way].replace("CHECKPOINTING=true", "CHECKPOINTING=false"))
    assert "CKPT303" not in codes(WAYS[way].replace("ACTIVATION_CHECKPOINTING", "CPU_RAM_EFFICIENT_LOADING"))
