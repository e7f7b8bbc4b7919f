"""Which random draws a rebuild repeats, and where the random states that they start from are taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set

    import torch

    from ..tracing.ir import Trace


@dataclass(frozen=True, slots=True)
class DrawRun:
    """Draws of one device in a row, repeated from one state: that before op ``first``, taken at pack ``anchor``."""

    device: torch.device
    first: int
    anchor: int


def draw_runs(trace: Trace, ops: Set[int]) -> tuple[DrawRun, ...]:
    """The runs of draws among ``ops``, in program order. A draw without an anchor must come with the one before it."""
    runs = []
    for index in sorted(ops):
        draw = trace.ops[index].draw
        if draw is not None and draw.previous not in ops:
            assert draw.anchor is not None
            runs.append(DrawRun(draw.device, index, draw.anchor))
    return tuple(runs)
