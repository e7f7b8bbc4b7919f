"""5,000 steps with changing shapes, adapters, policies, evaluation and generation under a memory limit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from ..state_machine.machine import adapted_llama
from .run import Counts, Soak, count_all, soak

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 5000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="hf_ckpt")


def figures(found: Soak) -> str:
    growth = {what: found.growth(what) for what in ("objects", "storages", "traces")}
    return ", ".join([f"{value:+.4f} {what} a step" for what, value in growth.items()])


def test_one_object_a_step_is_seen() -> None:
    model, kept = adapted_llama(), []
    count_all(model)  # what finalizers let go of in a collection is gone in the next one
    before = count_all(model)
    for _ in range(1000):
        kept.append([model])
    after = count_all(model)
    # the records themselves; what other tests left may go in between
    assert after.objects - before.objects == pytest.approx(1000, rel=0.02)
    grown = [Counts(1000 + 100 * phase, 10, 6, 0, 4) for phase in range(48)]
    assert Soak(4800, tuple(grown), 1, 1, equal_weights=True).growth("objects") == pytest.approx(1.0)
    assert Soak(4800, tuple(grown), 1, 1, equal_weights=True).recipes_a_step == pytest.approx(0.04)


@pytest.mark.slow
def test_the_weights_are_the_twins_after_some_rounds_of_policies(tell: Callable[..., None]) -> None:
    found = soak(480)
    tell("steps of a short soak", found.steps, figures(found))
    assert found.equal_weights
    assert found.counts[-1].hooks == found.counts[0].hooks


@pytest.mark.slow
def test_nothing_grows_and_the_weights_are_the_twins(tell: Callable[..., None]) -> None:
    found = soak(STEPS)
    tell("soak steps", found.steps, figures(found))
    assert found.evaluations
    assert found.generations
    assert found.equal_weights
    assert found.counts[-1].hooks == found.counts[0].hooks
    assert found.growth("objects") < 0.05, found.counts
    assert found.growth("storages") < 0.002, found.counts
    assert found.growth("traces") < 0.002, found.counts
    assert found.recipes_a_step < 1, found.counts
