"""The moments of a step at which its peak can be: the backwards of a few layers. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..costs.problem import Problem

#: The longest pattern of kinds (five sliding layers and a full one, for example) that is recognised.
LONGEST_PATTERN = 12


def peak_candidates(problem: Problem) -> list[int]:
    """The layers in whose backward the peak may be, ascending.

    Two facts leave few of them where, of every kind, the layers that hold least come first:

    * From one repetition of a pattern to the next the layers hold more and more, so what is held plus a constant
      number of bytes a repetition is convex: in between it never exceeds both ends.
    * A backward in which less is alive than in a later layer's, where more is held, is not the worst.
    """
    alive = problem.backward_bytes
    found: list[int] = []
    for layer in reversed(range(len(problem.order))):
        if _in_between(problem, layer):
            continue
        if not found or alive[layer] > alive[found[-1]]:
            found.append(layer)
    return found[::-1]


def _in_between(problem: Problem, layer: int) -> bool:
    """Whether the backward of ``layer`` lies between two that bound it, a pattern before and a pattern behind."""
    order, alive = problem.order, problem.backward_bytes
    for length in range(1, min(LONGEST_PATTERN, layer, len(order) - 1 - layer) + 1):
        before, behind = layer - length, layer + length
        if 2 * alive[layer] <= alive[before] + alive[behind] and Counter(order[before:layer]) == Counter(
            order[layer:behind]
        ):
            return True
    return False
