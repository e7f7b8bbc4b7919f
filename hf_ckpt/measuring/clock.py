"""How long backward takes beside forward, on the device's own clock."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn


class StepClock:
    """Times every training forward of a model, and the backward from its end to the next :meth:`backward_done`.

    On CUDA the times come from events on the stream, read only when asked for, so nothing waits for the device.
    """

    def __init__(self, model: nn.Module) -> None:
        self._handles = [
            model.register_forward_pre_hook(self._start, prepend=True),
            model.register_forward_hook(self._middle),
        ]
        self._cuda = next((p.device.type == "cuda" for p in model.parameters()), False)
        self._marks: list[Any] = []
        self._steps: list[tuple[Any, Any, Any]] = []

    def backward_done(self) -> None:
        """The backward of the last forward is over (gradients are there, the optimizer has not stepped)."""
        if len(self._marks) == 2:
            self._steps.append((self._marks[0], self._marks[1], self._now()))
        self._marks = []

    def undo(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()

    def backward_forward_ratio(self) -> float | None:
        """Median over the timed steps since the last call; None when the clock tells nothing of any."""
        steps, self._steps = self._steps, []
        if self._cuda and steps:
            torch.cuda.synchronize()
        times = [(self._seconds(a, b), self._seconds(b, c)) for a, b, c in steps]
        ratios = [backward / forward for forward, backward in times if forward > 0 and backward >= 0]
        return median(ratios) if ratios else None

    def _start(self, module: nn.Module, args: Any) -> None:
        self._marks = [self._now()] if module.training and torch.is_grad_enabled() else []

    def _middle(self, module: nn.Module, args: Any, output: Any) -> None:
        if len(self._marks) == 1:
            self._marks.append(self._now())

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end) / 1000 if self._cuda else end - start)
