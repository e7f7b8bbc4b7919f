"""Two ranks that gather parameters together run the same plan, whatever the lengths of their own batches."""

from pathlib import Path

import pytest


@pytest.mark.parametrize("worker", ["ranks.py", "uneven_ranks.py", "ranks_beside.py"])
def test_ranks_agree(worker, forked, tmp_path):
    for rank in forked.run_ranks(Path(__file__).with_name(worker), folder=tmp_path):
        assert "OK" in rank.stdout, rank.stderr[-3000:]
