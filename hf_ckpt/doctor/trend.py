"""Whether live memory grows step by step, and when it will be too much: pure arithmetic.

Measured before the first forward of a step, live bytes are state and whatever nobody let go of: the length of a batch
has no part in them. A trend is told only where every part of the window grew, about as fast at its end as in all of
it: what fills up once (a cache, state that is made late) is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import ceil
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Steps that a trend is read from: at least, and the latest so many.
LEAST = 12
WINDOW = 48
#: The slope of the latest third over that of all.
_STEADY = 0.5
#: The share of pairs of steps, a third of the window apart or more, of which the later one has more.
_ALWAYS = 0.95

Lives = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Trend:
    """Live bytes grow by ``per_step`` since step ``since``; memory ends at step ``out_at``."""

    per_step: float
    since: int
    out_at: int


def find_trend(lives: Sequence[tuple[int, int]], passing: int, total: int) -> Trend | None:
    """Read a trend from (step, live bytes) of consecutive steps.

    Args:
        lives: The steps so far, the oldest first; the first step of a run, which makes the state, left out.
        passing: Bytes that a step takes beside what is alive before it.
        total: Bytes of the device.

    Returns:
        The trend; None where there is none.
    """
    window = list(lives)[-WINDOW:]
    if len(window) < LEAST or not _grows_throughout(window):
        return None
    slope = _slope(window)
    if slope <= 0 or _slope(window[-(len(window) // 3) :]) < _STEADY * slope:
        return None
    step, live = window[-1]
    left = max(0, total - passing - live)
    return Trend(slope, window[0][0], step + ceil(left / slope))


def _grows_throughout(window: Lives) -> bool:
    third = len(window) // 3
    early, middle, late = window[:third], window[third : 2 * third], window[2 * third :]
    levels = [median(live for _, live in part) for part in (early, middle, late)]
    if not levels[0] < levels[1] < levels[2]:
        return False
    apart = [(a[1], b[1]) for a, b in combinations(window, 2) if b[0] - a[0] >= third]
    return sum(later > earlier for earlier, later in apart) >= _ALWAYS * len(apart)


def _slope(window: Lives) -> float:
    """The median of the slopes between all pairs (Theil and Sen): single steps that are off do not turn it."""
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(window, 2) if b[0] != a[0])
