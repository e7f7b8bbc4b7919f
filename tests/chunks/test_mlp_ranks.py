"""MLPs in chunks on two gloo ranks."""

from pathlib import Path

import pytest


@pytest.mark.parametrize("wrapping", ["ddp", "fsdp1", "fsdp2", "fsdp2 inside", "fsdp1 lora"])
def test_trains_alike_on_two_ranks(wrapping, forked, tmp_path):
    for rank in forked.run_ranks(Path(__file__).with_name("ranks.py"), wrapping, folder=tmp_path):
        assert "OK" in rank.stdout, rank.stderr[-3000:]
