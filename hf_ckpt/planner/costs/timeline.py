"""The bytes alive at every moment of a step under given plans, and the worst of them. Pure, no torch.

The moments are those of the memory model in assess.py: after every layer's forward, at the loss, in every layer's
backward, when all gradients are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING

from ..verb import loss_bytes, verbs
from .assess import layer_held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...assignment import Assignment
    from .problem import HeadOption, Problem


class Phase(StrEnum):
    """A part of a step."""

    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    END = "all gradients"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class Moment:
    """``nbytes`` alive in a phase, of layer number ``layer`` where the phase has layers."""

    phase: Phase
    layer: int | None
    nbytes: int

    def __str__(self) -> str:
        return self.phase if self.layer is None else f"{self.phase} {self.layer}"


def timeline(problem: Problem, plans: Sequence[Assignment[int]], head: HeadOption) -> tuple[Moment, ...]:
    """All moments of a step in order; the largest is what :func:`~.assess.assess` calls the peak.

    Args:
        problem: The stack of layers and its costs.
        plans: One assignment a layer in forward order.
        head: Bytes and seconds of the loss head.
    """
    held = [layer_held(problem.kind(layer), plan) for layer, plan in enumerate(plans)]
    room = problem.always + sum(verb.ready_bytes(problem, plans) for verb in verbs())
    room += ceil((problem.forwards - 1) * (sum(held) + head.held))
    sums = [sum(held[:layer]) for layer in range(len(held) + 1)]
    backward = problem.backward_bytes
    return (
        *(Moment(Phase.FORWARD, layer, room + sums[layer + 1]) for layer in range(len(held))),
        Moment(Phase.LOSS, None, room + sums[-1] + head.nbytes + loss_bytes(problem, plans)),
        *(Moment(Phase.BACKWARD, layer, room + sums[layer] + backward[layer]) for layer in reversed(range(len(held)))),
        Moment(Phase.END, None, room + problem.all_gradients),
    )


def worst(moments: Sequence[Moment]) -> Moment:
    """The first of the moments at which most bytes are alive."""
    return max(moments, key=lambda moment: moment.nbytes)
