"""5,000 steps with changing shapes, adapters, policies, evaluation and generation under a memory limit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from .run import soak

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 5000


@pytest.mark.slow
def test_nothing_grows_and_the_weights_are_the_twins(
    tell: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    found = soak(STEPS)
    tell("soak steps", found.steps, f"{found.evaluations} evaluations, {found.generations} generations")
    assert found.equal_weights
    assert found.counts[-1].hooks == found.counts[0].hooks
    assert found.growth("objects") < 0.05, found.counts
    assert found.growth("storages") < 0.002, found.counts
    assert found.growth("traces") < 0.002, found.counts
