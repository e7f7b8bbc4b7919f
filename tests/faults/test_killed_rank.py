"""SIGKILL of one of two ranks: the other one ends with an error, and the run resumes to the same weights."""

from __future__ import annotations

import random
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..forked import Forked, Run

SCRIPT = Path(__file__).with_name("killed_rank.py")


def digest(ranks: list[Run]) -> str:
    assert [rank.status for rank in ranks] == [0, 0], ranks[0].stderr[-3000:]
    [line] = {line for rank in ranks for line in rank.stdout.splitlines() if line.startswith("digest")}
    return line


@pytest.mark.slow
def test_a_killed_rank_and_a_resumed_run(forked: Forked, tmp_path: Path, tell: Callable[..., None]) -> None:
    seed = secrets.randbelow(1 << 31)
    rng = random.Random(seed)
    policy, at = rng.choice(["full", "balanced", "budget=0.5", "segments(2)"]), rng.randint(3, 6)
    tell("fault injections", 1, f"rank killed at step {at} under {policy}")
    whole = digest(forked.run_ranks(SCRIPT, "whole", "0", policy, folder=tmp_path))
    left, killed = forked.run_ranks(SCRIPT, "cut", str(at), policy, folder=tmp_path)
    assert killed.status == -9
    assert left.status == 1, "the rank that is left waits for nobody"
    assert "Error" in left.stderr
    assert digest(forked.run_ranks(SCRIPT, "cut", "0", policy, folder=tmp_path)) == whole
