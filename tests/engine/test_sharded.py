"""DDP, FSDP1 and FSDP2 on two gloo ranks: bitwise, and no more all-gathers than without checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch.multiprocessing as mp

from . import sharded_worker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "strategy", ["ddp", "fsdp1", "fsdp1-flat", "fsdp2", pytest.param("fsdp2-bf16", marks=pytest.mark.slow)]
)
def test_sharded_training_is_bitwise_equal(strategy: str, tmp_path: Path) -> None:
    """Full fine-tuning and LoRA, three decisions each; ``flat`` is FSDP1 with ``use_orig_params=False``."""
    mp.spawn(sharded_worker.run, args=(2, str(tmp_path / "rendezvous"), strategy), nprocs=2)
