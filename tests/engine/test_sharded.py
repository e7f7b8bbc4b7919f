"""DDP, FSDP1 and FSDP2 on two gloo ranks: bitwise, and no more all-gathers than without checkpointing."""

from __future__ import annotations

import socket

import pytest
import torch.multiprocessing as mp

from . import sharded_worker


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.parametrize("strategy", ["ddp", "fsdp1", "fsdp2", pytest.param("fsdp2-bf16", marks=pytest.mark.slow)])
def test_sharded_training_is_bitwise_equal(strategy: str) -> None:
    """Full fine-tuning and LoRA, three decisions each."""
    mp.spawn(sharded_worker.run, args=(2, free_port(), strategy), nprocs=2)
