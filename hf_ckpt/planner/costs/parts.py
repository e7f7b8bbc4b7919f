"""What the bytes alive at every moment of a step are for. Pure, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING

from ...assignment import REBUILD
from ..verb import loss_bytes, verbs
from .assess import layer_held
from .timeline import Moment, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...assignment import Assignment
    from .problem import HeadOption, Problem


class Part(StrEnum):
    """What bytes are for, in the order in which they are stacked."""

    STATE = "weights and optimizer"
    GRADIENTS = "gradients"
    SHARED = "shared by the layers, and other forwards"
    BOUNDARIES = "layer inputs"
    KEPT = "kept activations"
    REPLAYED = "the layer that is replayed, or in backward"
    HEAD = "logits and loss"
    STEP = "the optimizer's copies"


@dataclass(frozen=True, slots=True)
class MomentParts:
    """A moment of a step, and its bytes by what they are for."""

    moment: Moment
    bytes_of: dict[Part, int]


def parts_over_step(problem: Problem, plans: Sequence[Assignment[int]], head: HeadOption) -> tuple[MomentParts, ...]:
    """The moments of :func:`~.timeline.timeline`, each taken apart."""
    held = [layer_held(problem.kind(layer), plan) for layer, plan in enumerate(plans)]
    inputs = [_inputs(problem, layer, plan) for layer, plan in enumerate(plans)]
    shared = problem.always + sum(verb.ready_bytes(problem, plans) for verb in verbs())
    shared += ceil((problem.forwards - 1) * (sum(held) + head.held))

    def taken(phase: Phase, layer: int | None, upto: int, more: dict[Part, int]) -> MomentParts:
        bytes_of = {Part.SHARED: shared, Part.BOUNDARIES: sum(inputs[:upto])}
        bytes_of |= {Part.KEPT: sum(held[:upto]) - sum(inputs[:upto])} | more
        return MomentParts(Moment(phase, layer, sum(bytes_of.values())), bytes_of)

    count = len(plans)
    return (
        *(taken(Phase.FORWARD, layer, layer + 1, {}) for layer in range(count)),
        taken(Phase.LOSS, None, count, {Part.HEAD: head.nbytes, Part.SHARED: shared + loss_bytes(problem, plans)}),
        *(taken(Phase.BACKWARD, layer, layer, _backward(problem, layer)) for layer in reversed(range(count))),
        taken(Phase.END, None, 0, {Part.GRADIENTS: problem.all_gradients}),
    )


def _inputs(problem: Problem, layer: int, plan: Assignment[int]) -> int:
    """Bytes that a layer holds of what it was given: what the verb that runs ops again counts."""
    return sum(verb.layer_held(problem.kind(layer), plan) for verb in verbs() if verb.name == REBUILD)


def _backward(problem: Problem, layer: int) -> dict[Part, int]:
    """What the backward of a layer has alive beside what the layers before it hold."""
    here = problem.kind(layer).transient
    return {Part.GRADIENTS: problem.backward_bytes[layer] - here, Part.REPLAYED: here}
