"""What `hf-ckpt plan` says fits a card runs on the simulated one; what it says does not fit runs out of memory there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from transformers import LlamaConfig

from hf_ckpt.cli import command

from .models import LLAMA_7B, LLAMA_8B

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow
LENGTH = 2048
#: A card with a model that it has room for, and what runs out there.
CASES = [
    ("rtx4090", LLAMA_7B, "full"),
    ("l40s", LLAMA_8B, "full"),
    ("l40s", LLAMA_7B, "mlp"),
    ("a100", LLAMA_8B, "none"),
    ("h100", LLAMA_7B, "balanced"),
]


def planned(folder: Path, card: str, policy: str, *options: str) -> dict[str, Any]:
    """The answer of `hf-ckpt plan` for a model with adapters on all linear layers."""
    at = f"--gpu {card} --lora 16 --length {LENGTH} --policy {policy} --json"
    done = CliRunner(catch_exceptions=False).invoke(command, ["plan", "--model", str(folder), *at.split(), *options])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"], ids=["default", "expandable"])
@pytest.mark.parametrize(("card", "shape", "policy"), CASES, ids=[f"{card}-{policy}" for card, _, policy in CASES])
def test_what_fits_runs_and_what_does_not_runs_out(
    card: str, shape: dict[str, Any], policy: str, allocator: str, simulate: Callable[..., Any], tmp_path: Path
) -> None:
    config = LlamaConfig(**shape, max_position_embeddings=32768, use_cache=False)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path)
    rows = planned(tmp_path, card, policy, "--largest", "batch")["largest_batch"][policy]

    def run(batch: int) -> dict[str, Any]:
        found: dict[str, Any] = simulate(
            card, "fitting", json.dumps(shape), str(batch), str(LENGTH), policy, allocator=allocator
        )
        return found

    assert run(rows)["failed"] == "", f"{rows} rows fit by plan"
    more = rows
    while True:  # the first size whose bytes alive are more than the card has
        more += 1
        (row,) = planned(tmp_path, card, policy, "--batch", str(more))["forecasts"]
        if not (row["fits"] or row["tight"]):
            break
    beyond = run(more)
    assert beyond["failed"] != "", (f"{more} rows do not fit by plan", row["total_bytes"], beyond)
