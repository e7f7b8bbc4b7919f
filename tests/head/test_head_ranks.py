"""The chunked head on two gloo ranks; a head that is an FSDP unit of its own is left alone."""

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "wrapping", ["ddp", "ddp-unused", "ddp-static", "fsdp1", "fsdp1-orig", "fsdp1-own-head", "fsdp2", "fsdp2-own-head"]
)
def test_trains_alike_on_two_ranks(wrapping, forked, tmp_path):
    for rank in forked.run_ranks(Path(__file__).with_name("ranks.py"), wrapping, folder=tmp_path):
        assert "OK" in rank.stdout, rank.stderr[-3000:]
