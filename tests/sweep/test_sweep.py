"""A few classes of the sweep, drawn anew each time; `make sweep` judges them all."""

from __future__ import annotations

import random
import time

import pytest

from .classes import subjects
from .run import sweep

_SECONDS = 45


@pytest.mark.slow
def test_a_sample_of_architectures(record_property) -> None:
    """No wrong gradient, no error and no false alarm; what a policy refuses, or the generator cannot build, is told."""
    seed = random.SystemRandom().randrange(10**6)
    record_property("seed", seed)
    chosen = random.Random(seed).sample(subjects(), 50)
    end, broken, judged = time.monotonic() + _SECONDS, {}, 0
    for result in sweep(chosen, ("full", "budget=0.5", "segments(2)")):
        judged += result["built"]
        wrong = {name: p for name, p in result["policies"].items() if p["verdict"] in ("wrong", "error", "no effect")}
        if wrong:
            broken[result["model_class"]] = wrong
        if time.monotonic() > end:
            break
    assert not broken, f"seed {seed}: {broken}"
    assert judged, f"seed {seed}: none of the classes was built"
