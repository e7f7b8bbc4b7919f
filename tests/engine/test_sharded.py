"""DDP, FSDP1 and FSDP2 on two gloo ranks: bitwise, and no more all-gathers than without checkpointing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..forked import Forked

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "strategy", ["ddp", "fsdp1", "fsdp1-flat", "fsdp2", pytest.param("fsdp2-bf16", marks=pytest.mark.slow)]
)
def test_sharded_training_is_bitwise_equal(strategy: str, forked: Forked) -> None:
    """Full fine-tuning and LoRA, three decisions each; ``flat`` is FSDP1 with ``use_orig_params=False``."""
    for rank in forked.run_ranks("-m", "tests.engine.sharded_worker", strategy, folder=ROOT):
        assert "OK" in rank.stdout, rank.stderr[-3000:]
