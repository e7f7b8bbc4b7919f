"""A trend that ends in an out-of-memory error is said once, before it; nothing else is."""

from __future__ import annotations

import logging
import random
import re

import pytest
import torch

from hf_ckpt.doctor.trend import find_trend

from .memory_faults import ROOM, logits_in_a_list
from .runs import run, small_llama, texts

MiB = 2**20


def test_foretells_the_step(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.doctor.memory_faults.ROOM", 5_000_000)
    with caplog.at_level(logging.WARNING, logger="hf_ckpt"):
        callback, error, _ = logits_in_a_list()
    assert isinstance(error, torch.OutOfMemoryError)
    assert callback.diagnosis is not None
    assert callback.diagnosis.evidence.step is not None
    told = re.findall(r"run out at about step (\d+) of 30", caplog.text)
    assert len(told) == 1, caplog.text
    assert abs(int(told[0]) - callback.diagnosis.evidence.step.number) <= 2, caplog.text
    assert "`Keeps.kept` holds" in caplog.text.partition("Out of memory in")[0]


@pytest.mark.parametrize(
    "lengths", [[32] * 80, [random.Random(1).randint(4, 60) for _ in range(80)], list(range(8, 88))]
)
def test_clean_runs_foretell_nothing(lengths: list[int], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="hf_ckpt"):
        _, error, _ = run(2 * ROOM, small_llama(), texts(lengths), arguments_of={"max_steps": 40})
    assert error is None
    assert "run out" not in caplog.text


def _steps(live: list[float]) -> list[tuple[int, int]]:
    return [(step, int(bytes_ * MiB)) for step, bytes_ in enumerate(live, start=2)]


def test_reads_a_line_through_noise() -> None:
    noise = random.Random(0)
    found = find_trend(_steps([100 + 2 * i + noise.uniform(-1, 1) for i in range(30)]), 50 * MiB, 500 * MiB)
    assert found is not None
    assert abs(found.out_at - (2 + 175)) <= 6


@pytest.mark.parametrize(
    "live",
    [
        [100.0] * 40,
        [100 + 20 * (1 - 0.7**i) for i in range(40)],
        [100.0 + (i > 20) * 50 for i in range(40)],
        [100 + 10 * (i % 7) for i in range(40)],
        [100 + random.Random(7).uniform(0, 30) for i in range(40)],
        [100 + i for i in range(8)],
        [140 - i for i in range(40)],
        [100 + min(i, 15) * 3 for i in range(40)],
    ],
    ids=["level", "saturating", "one jump", "saw", "noise", "short", "falling", "filled cache"],
)
def test_other_shapes_are_no_trend(live: list[float]) -> None:
    assert find_trend(_steps(live), 0, 200 * MiB) is None
