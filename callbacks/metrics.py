"""What SelectiveCkpt adds to a Trainer's logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hf_ckpt.measuring.report import to_metrics

if TYPE_CHECKING:
    from hf_ckpt.measuring.clock import StepClock
    from hf_ckpt.measuring.report import Report


def step_metrics(report: Report, clock: StepClock | None) -> dict[str, Any]:
    """The figures of the latest measured step, and of the steps timed since the last log; bytes as integers."""
    metrics = to_metrics(report)
    ratio = clock.backward_forward_ratio() if clock is not None else None
    if ratio is not None:
        metrics["ckpt/backward_forward_ratio"] = round(ratio, 3)
    if torch.cuda.is_available():
        metrics["ckpt/peak_bytes"] = torch.cuda.max_memory_allocated()
    return metrics
