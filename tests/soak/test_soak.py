"""5,000 steps with changing shapes, adapters, policies, evaluation and generation under a memory limit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from .run import soak

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 5000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="hf_ckpt")


@pytest.mark.slow
def test_the_weights_are_the_twins_after_two_rounds_of_policies() -> None:
    found = soak(240)
    assert found.equal_weights
    assert found.counts[-1].hooks == found.counts[0].hooks


@pytest.mark.slow
def test_nothing_grows_and_the_weights_are_the_twins(tell: Callable[..., None]) -> None:
    found = soak(STEPS)
    growth = {what: found.growth(what) for what in ("objects", "storages", "traces")}
    tell("soak steps", found.steps, f"{found.evaluations} evaluations, {found.generations} generations")
    assert found.equal_weights
    assert found.counts[-1].hooks == found.counts[0].hooks
    assert growth["objects"] < 0.05, (growth, found.counts)
    assert growth["storages"] < 0.002, (growth, found.counts)
    assert growth["traces"] < 0.002, (growth, found.counts)
