"""The chunked head on two gloo ranks; a head that is an FSDP unit of its own is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "wrapping", ["ddp", "ddp-unused", "ddp-static", "fsdp1", "fsdp1-orig", "fsdp1-own-head", "fsdp2", "fsdp2-own-head"]
)
def test_trains_alike_on_two_ranks(wrapping):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*command, str(Path(__file__).with_name("ranks.py")), wrapping],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert run.stdout.count("OK") == 2, run.stderr[-3000:]
