"""Ends a training after its first steps."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .examination import STEPS


class StopsEarly(TrainerCallback):  # type: ignore[misc]
    """The last of the callbacks: it lets nothing be saved or evaluated on the way."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step."""
        self.steps = state.global_step
        control.should_training_stop = control.should_training_stop or self.steps >= STEPS
        _end_quietly(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch may be shorter than that."""
        _end_quietly(control)


def _end_quietly(control: Any) -> None:
    control.should_save = control.should_evaluate = control.should_log = False
