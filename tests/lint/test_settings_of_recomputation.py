"""Settings of a file that say how to recompute without the word checkpoint: read with the script that loads it."""

from __future__ import annotations

import pytest
from started import found

SCRIPT = """\
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from omegaconf import OmegaConf
from torch import nn
from torch.utils.checkpoint import checkpoint

HERE = Path(__file__).parent

@dataclass
class Remat:
    use_reentrant: bool = False
    preserve_rng_state: bool = True

def load(path):
    with open(path) as file:
        return yaml.safe_load(file)

block = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
x = torch.ones(2, 8, requires_grad=True)
LOADED
checkpoint(block, x, GIVEN).sum().backward()
"""
YAML = "model:\n  dim: 8\nremat:\n  preserve_rng_state: true\n  use_reentrant: {}\n"
JSON = '{{"model": {{"dim": 8}}, "remat": {{"preserve_rng_state": true, "use_reentrant": {}}}}}\n'
SPREAD = '**cfg["remat"]'
WAYS = {
    "yaml": ("a.yaml", YAML, 'cfg = yaml.safe_load(open("a.yaml"))', SPREAD),
    "path": ("conf/a.yaml", YAML, 'cfg = yaml.safe_load((HERE / "conf" / "a.yaml").read_text())', SPREAD),
    "helper": ("a.yaml", YAML, 'cfg = load(HERE / "a.yaml")', SPREAD),
    "with": ("a.yaml", YAML, 'with open("a.yaml") as file:\n    cfg = yaml.safe_load(file)', SPREAD),
    "item": ("a.yaml", YAML, 'cfg = load("a.yaml")', 'use_reentrant=cfg["remat"]["use_reentrant"]'),
    "get": ("a.yaml", YAML, 'cfg = load("a.yaml")["remat"]', 'use_reentrant=cfg.get("use_reentrant", False)'),
    "dataclass": (
        *("a.yaml", YAML),
        *('cfg = Remat(**load("a.yaml")["remat"])', "use_reentrant=cfg.use_reentrant"),
    ),
    "omegaconf": ("a.yaml", YAML, 'cfg = OmegaConf.load("a.yaml")', "use_reentrant=cfg.remat.use_reentrant"),
    "json": ("a.json", JSON, 'cfg = json.loads(Path("a.json").read_text())', SPREAD),
}


def _found(folder, way, value):
    name, settings, loaded, given = WAYS[way]
    script = SCRIPT.replace("LOADED", loaded).replace("GIVEN", given)
    return found(folder, {"train.py": script, name: settings.format(value)}, "--select", "CKPT133")


@pytest.mark.parametrize("way", WAYS)
def test_a_text_where_a_bool_is_due(tmp_path, way):
    assert _found(tmp_path, way, '"False"') == ["CKPT133"]
    assert _found(tmp_path, way, "false") == []


def test_a_file_that_the_command_names_is_left_open(tmp_path):
    files = {
        "train.py": SCRIPT.replace("LOADED", "cfg = load(sys.argv[1])").replace("GIVEN", SPREAD),
        "a.yaml": YAML.format('"False"'),
    }
    assert found(tmp_path, files, "--select", "CKPT133") == []
