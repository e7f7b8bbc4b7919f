"""Two ranks that gather parameters together run the same plan, whatever the lengths of their own batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("worker", ["ranks.py", "uneven_ranks.py"])
def test_fsdp2_ranks_agree(worker):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*command, str(Path(__file__).with_name(worker))],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert run.stdout.count("OK") == 2, run.stderr[-3000:]
