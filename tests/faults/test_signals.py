"""A real SIGINT in a training loop of a process of its own."""

from __future__ import annotations

import random

import pytest

from .signals import interrupted
from .surroundings import own_caches


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_interrupt_from_the_keyboard(seed: int) -> None:
    with own_caches():
        outcome = interrupted(random.Random(seed))
    assert not outcome.problems, outcome
