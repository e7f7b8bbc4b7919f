"""What plans cost, by exact arithmetic, no torch.

The memory model, in forward order ``0..L-1``. Layer ``i`` *holds* ``m_i`` bytes from its forward to its backward: the
saved activations it keeps, plus its own input when autograd saves it or a rebuild reads it. With ``S_i`` the sum of
``m_0`` to ``m_i``:

* when the loss is computed, ``S_{L-1}`` plus what the loss head needs is alive;
* in the backward of layer ``i`` the layers behind it are gone, layer ``i`` has everything it saved (kept, rebuilt or
  brought back) plus its working memory and its own gradients so far, and the gradients of the layers behind it exist:
  ``S_{i-1} + transient_i + gradients_{> i}``;
* when all is done, every parameter gradient exists, those of the embeddings too.

So the last layers are special: what the last one keeps is alive while it is replayed anyway, and costs nothing unless
the loss head is what peaks. What a verb holds, adds and must have ready stands in ``planner/verbs/``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from ..verb import loss_bytes, verbs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...assignment import Assignment
    from .problem import HeadOption, Kind, Limits, Problem


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a plan costs by the model: bytes held by the layers after forward, bytes at the peak, added seconds."""

    held: int
    peak: int
    seconds: float

    def within(self, limits: Limits) -> bool:
        """Whether both bounds are met."""
        return (limits.peak is None or self.peak <= limits.peak) and (limits.held is None or self.held <= limits.held)


def layer_held(kind: Kind, plan: Assignment[int]) -> int:
    """Bytes that a layer under this plan holds between its forward and its backward."""
    return sum(verb.layer_held(kind, plan) for verb in verbs())


def assess(problem: Problem, plans: Sequence[Assignment[int]], head: HeadOption) -> Assessment:
    """The model's exact prediction for these plans, one a layer in forward order.

    Args:
        problem: The stack of layers and its costs.
        plans: What happens to the saved tensors, one assignment a layer in forward order.
        head: Bytes and seconds of the loss head.
    """
    held_by = {(k, plan): layer_held(problem.kinds[k], plan) for k, plan in set(zip(problem.order, plans, strict=True))}
    seconds_of = {
        (k, plan): sum(verb.layer_seconds(problem, problem.kinds[k], plan) for verb in verbs()) for k, plan in held_by
    }
    room = problem.always + sum(verb.ready_bytes(problem, plans) for verb in verbs())
    seconds = sum(verb.stack_seconds(problem, plans) for verb in verbs()) + head.seconds + problem.chunk_seconds
    held, peak = 0, problem.all_gradients
    for key, backward in zip(zip(problem.order, plans, strict=True), problem.backward_bytes, strict=True):
        peak = max(peak, held + backward)
        held += held_by[key]
        seconds += seconds_of[key]
    # Rounded first: 1.1 forwards less one are a little more than a tenth in floating point.
    others = ceil(round((problem.forwards - 1) * (held + head.held), 3))
    at_loss = held + head.nbytes + loss_bytes(problem, plans)
    return Assessment(held, room + others + max(peak, at_loss), seconds)
