"""The bytes alive on one of several cards that compute a model's layers in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..planner.costs.assemble import under
from ..planner.costs.problem import HeadOption
from ..planner.costs.timeline import Moment, Phase, timeline

if TYPE_CHECKING:
    from ..planner.costs.problem import Problem
    from ..planner.memory.cards import Card
    from ..planner.solver.solve import Solution


def card_moments(problem: Problem, solution: Solution, card: Card, *, grows: bool) -> tuple[Moment, ...]:
    """All moments of a step on one card; layers have their numbers in the whole model.

    Args:
        problem: The whole stack of layers and its costs.
        solution: The plan of all layers.
        card: The card.
        grows: Whether gradients come up in backward; they stand all along otherwise.

    Returns:
        The moments, the optimizer's step last.
    """
    whole = under(problem, solution.layers)
    # accelerate's hook moves what all layers share to the card of each layer anew: every layer holds a copy.
    copies = 1 if card.first == 0 else card.end - card.first
    here = replace(
        whole,
        order=whole.order[card.first : card.end],
        shared=copies * whole.shared,
        head_gradients=card.head_gradients if grows else 0,
        late_gradients=card.late_gradients if grows else 0,
    )
    head = solution.head if card.has_head else HeadOption(1, 0)
    found = timeline(here, solution.layers[card.first : card.end], head)
    step = Moment(Phase.OPTIMIZER, None, card.gradients + card.step_copies)
    standing = 0 if grows else card.gradients
    numbered = (m if m.layer is None else replace(m, layer=m.layer + card.first) for m in found)
    return (*(replace(m, nbytes=m.nbytes + standing) for m in numbered), step)
