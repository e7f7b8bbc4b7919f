"""The state machine, a few examples that are the same every time, and many that are drawn anew."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .machine import OursAndTwin

if TYPE_CHECKING:
    from collections.abc import Callable

#: Not shrunk: each try is a training, and an example is short as it is.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def run(examples: int, steps: int, tell: Callable[..., None]) -> None:
    class Counted(OursAndTwin):
        pass

    logging.getLogger("hf_ckpt").setLevel(logging.ERROR)
    try:
        chosen = settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=_PHASES,
        )
        run_state_machine_as_test(Counted, settings=chosen)
    finally:
        logging.getLogger("hf_ckpt").setLevel(logging.NOTSET)
        tell("examples of the state machine", Counted.examples)
        tell("training steps in them, each compared with the twin's", Counted.steps)


def test_a_few_orders(tell: Callable[..., None]) -> None:
    run(6, 12, tell)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_many_orders(part: int, tell: Callable[..., None]) -> None:
    run(60, 30, tell)
