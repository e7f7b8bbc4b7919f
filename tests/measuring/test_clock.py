"""The clock of a step under a clock that does not go on evenly."""

import time

import pytest
import torch

from hf_ckpt.measuring.clock import StepClock


@pytest.mark.parametrize(
    ("times", "ratio"),
    [
        ((0.0, 1.0, 3.0), 2.0),
        ((5.0, 5.0, 5.0), None),  # too coarse for so short a forward
        ((5.0, 4.0, 9.0), None),
        ((5.0, 6.0, 2.0), None),
    ],
)
def test_a_step_that_the_clock_cannot_time_counts_nothing(times, ratio, monkeypatch):
    monkeypatch.setattr(time, "perf_counter", iter(times).__next__)
    model = torch.nn.Linear(2, 2)
    clock = StepClock(model)
    model(torch.ones(1, 2))
    clock.backward_done()
    assert clock.backward_forward_ratio() == ratio
