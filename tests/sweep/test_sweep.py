"""A few classes of the sweep, drawn anew each time; `make sweep` judges them all."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .classes import subjects
from .judge import GOOD
from .run import read_results, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from .classes import Subject

_POLICIES = ("full", "budget=0.5", "segments(2)")
_RESULTS = Path(__file__).parent / "results.jsonl"


def test_a_sample_of_what_was_right(record_property: Callable[[str, object], None]) -> None:
    """What passed in the committed results passes now."""
    known = read_results(_RESULTS)
    right = [s for s in subjects() if s.model_class in known and _is_right(known[s.model_class])]
    _judge_a_sample(right, 12, record_property)


@pytest.mark.slow
def test_a_sample_of_architectures(record_property: Callable[[str, object], None]) -> None:
    """No wrong gradient, no error and no false alarm; what a policy refuses, or the generator cannot build, is told."""
    _judge_a_sample(subjects(), 45, record_property)


def _is_right(result: dict[str, object]) -> bool:
    policies = result["policies"]
    assert isinstance(policies, dict)
    return bool(result["built"]) and all(policy["verdict"] in GOOD for policy in policies.values())


def _judge_a_sample(population: list[Subject], seconds: float, record_property: Callable[[str, object], None]) -> None:
    seed = random.SystemRandom().randrange(10**6)
    record_property("seed", seed)
    chosen = random.Random(seed).sample(population, min(50, len(population)))
    end, broken, judged = time.monotonic() + seconds, {}, 0
    for result in sweep(chosen, _POLICIES):
        judged += result["built"]
        wrong = {name: p for name, p in result["policies"].items() if p["verdict"] in ("wrong", "error", "no effect")}
        if wrong:
            broken[result["model_class"]] = wrong
        if time.monotonic() > end:
            break
    assert not broken, f"seed {seed}: {broken}"
    assert judged, f"seed {seed}: none of the classes was built"
