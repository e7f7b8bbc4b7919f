"""Where settings come from: views of dicts, chains of them, classes of attrs, fields of a class, parsers that are fed."""

from __future__ import annotations

import json

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.api import check_paths

_HEAD = """
import json
from collections import ChainMap
from dataclasses import dataclass, field
from types import MappingProxyType
import attr
import attrs
from attrs import frozen
from transformers import HfArgumentParser, Trainer, TrainingArguments

WANTED = {"activation_checkpointing": True}
BASE = {"fsdp": "full_shard", "fsdp_config": WANTED, "gradient_checkpointing": BASIC}
MORE = {"gradient_checkpointing": SWITCH}
"""
_READ = "TrainingArguments('out', fsdp=it.fsdp, gradient_checkpointing=it.ckpt, fsdp_config=WANTED)\n"
SOURCES = {
    "a view": "TrainingArguments('out', **MappingProxyType({**BASE, **MORE}))\n",
    "a chain": "TrainingArguments('out', **ChainMap(MORE, BASE))\n",
    "a chain that grows": "TrainingArguments('out', **dict(ChainMap(BASE).new_child(MORE)))\n",
    "attr.ib": "@attr.s\nclass Settings:\n    fsdp = attr.ib(default='full_shard')\n    ckpt = attr.ib(SWITCH)\n"
    f"it = Settings()\n{_READ}",
    "annotated": "@attr.s(auto_attribs=True)\nclass Settings:\n    ckpt: bool = BASIC\n    fsdp: str = 'full_shard'\n"
    f"it = Settings(ckpt=SWITCH)\n{_READ}",
    "attrs.define": "@attrs.define\nclass Settings:\n    ckpt: bool = BASIC\n"
    f"    fsdp: str = attrs.field(default='full_shard')\nit = Settings(SWITCH)\n{_READ}",
    "written later": "@attrs.define\nclass Settings:\n    ckpt: bool = BASIC\n    fsdp: str = 'full_shard'\n"
    f"it = Settings()\nit.ckpt = SWITCH\n{_READ}",
    "asdict": "@frozen\nclass Settings:\n    gradient_checkpointing: bool = BASIC\n    fsdp: str = 'full_shard'\n"
    "    fsdp_config: dict = attrs.field(factory=lambda: WANTED)\n"
    "it = attrs.evolve(Settings(), gradient_checkpointing=SWITCH)\nTrainingArguments('out', **attrs.asdict(it))\n",
    "fields of a class": "@dataclass\nclass Own(TrainingArguments):\n    fsdp: str = 'full_shard'\n"
    "    fsdp_config: dict = field(default_factory=lambda: WANTED)\n    gradient_checkpointing: bool = SWITCH\n"
    "Own('out')\n",
    "a parser of a dict": "args, = HfArgumentParser(TrainingArguments).parse_dict({**BASE, **MORE})\n",
    "its first object": "args = HfArgumentParser((TrainingArguments,)).parse_dict({**BASE, **MORE})[0]\n",
}
OPEN = {
    "a chain behind a file": "TrainingArguments('out', **ChainMap(json.load(open('unknown')), MORE, BASE))\n",
    "a parameter": f"@attrs.define\nclass Settings:\n    ckpt: bool = SWITCH\n    fsdp: str = 'full_shard'\n"
    f"def main(it: Settings):\n    {_READ}",
    "a command line": "@dataclass\nclass Own(TrainingArguments):\n    fsdp: str = 'full_shard'\n"
    "    fsdp_config: dict = field(default_factory=lambda: WANTED)\n    gradient_checkpointing: bool = SWITCH\n"
    "args, = HfArgumentParser(Own).parse_args_into_dataclasses()\n",
}


def _findings(source: str, switch: bool):
    text = (_HEAD + source).replace("SWITCH", str(switch)).replace("BASIC", str(not switch))
    return check_source(text, "train.py")


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_what_is_said_there_counts(source):
    assert {finding.code for finding in _findings(source, True)} == {"CKPT303"}
    assert _findings(source, False) == []


@pytest.mark.parametrize("source", OPEN.values(), ids=OPEN)
def test_what_others_may_say_does_not(source):
    assert _findings(source, True) == []


def test_a_parser_gets_no_field_by_keyword():
    assert [finding.fix for finding in _findings(SOURCES["a parser of a dict"], True)] == [None]


_PARSED = """
import os
from dataclasses import dataclass
from transformers import HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Data:
    path: str = "train.jsonl"

data, args = HfArgumentParser((Data, TrainingArguments)).PARSE
"""


@pytest.mark.parametrize(
    "parse",
    [
        'parse_json_file("args.json")',
        'parse_json_file(json_file=os.path.abspath("args.json"), allow_extra_keys=True)',
        'parse_yaml_file("args.yaml")',
    ],
)
@pytest.mark.parametrize(("switch", "found"), [(True, {"CKPT303"}), (False, set())])
def test_a_file_that_a_parser_is_given(tmp_path, parse, switch, found):
    held = {"path": "a.jsonl", "output_dir": "out", "fsdp": "full_shard", "gradient_checkpointing": switch}
    text = json.dumps({**held, "fsdp_config": {"activation_checkpointing": True}})
    for name in ("args.json", "args.yaml"):  # JSON is YAML
        (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text(_PARSED.replace("PARSE", parse))
    scripts = [it for it in check_paths([str(tmp_path)]) if it.filename.endswith(".py")]
    assert {finding.code for finding in scripts} == found
