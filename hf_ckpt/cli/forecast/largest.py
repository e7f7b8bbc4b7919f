"""The largest size at which something still fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def largest(fits: Callable[[int], bool], step: int, most: int) -> int | None:
    """Search the largest multiple of ``step`` that fits, by doubling and halving.

    Args:
        fits: Whether a size fits; what does not fit does not fit when larger either.
        step: The resolution, and the smallest size that is tried.
        most: The largest size that makes sense.

    Returns:
        The size, ``most`` at the most; None when ``step`` does not fit already.
    """
    if most < step or not fits(step):
        return None
    low, high = 1, most // step + 1  # in steps; `low` fits, `high` is not allowed or does not fit
    while 2 * low < high and fits(2 * low * step):
        low *= 2
    high = min(high, 2 * low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle)
    return low * step
