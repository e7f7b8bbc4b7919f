"""`hf-ckpt plan --device-map` against a model that accelerate places on two simulated cards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from transformers import LlamaConfig

from hf_ckpt.cli import command

from .shapes import LENGTH, ROWS, SHAPE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow
POLICIES = ("none", "full", "mlp")


@pytest.mark.parametrize("policy", POLICIES)
def test_the_fullest_card_takes_what_is_planned(policy: str, simulate: Callable[..., Any], tmp_path: Path) -> None:
    measured = simulate("a100", "device_map", policy, count=2)[policy]
    config = LlamaConfig(**SHAPE)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path)
    options = f"--gpu a100 --gpus 2 --device-map --batch {ROWS} --length {LENGTH} --policy {policy} --json"
    done = CliRunner(catch_exceptions=False).invoke(command, ["plan", "--model", str(tmp_path), *options.split()])
    (row,) = json.loads(done.stdout)["forecasts"]
    assert row["total_bytes"] == pytest.approx(max(measured), rel=0.03), (row["peak_at"], measured)
    assert row["peak_at"].endswith(f"card {measured.index(max(measured))}")
