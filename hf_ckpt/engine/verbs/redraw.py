"""Redraw: random numbers are drawn again in backward, from the random state that the forward drew them from.

The layer runs untouched, so a state can only be taken when the layer is entered, and when autograd saves a tensor. One
state serves all draws of a run, which are repeated in order. Afterwards the generators are put back to where they
stood. A tensor drawn again is dropped and asked for as a rebuilt one is: the draws are among the ops of the rebuild.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..random_state import random_state
from ..tracing.ir import ENTRY
from ..verb import Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ..recipes.recipe import Recipe
    from ..running.frame import Frame
    from ..verb import Around


class Redraw(Verb):
    """The tensor is drawn again, from the random state that the forward drew it from."""

    name = "redraw"

    def around(self, recipe: Recipe) -> Around | None:
        """Note random states, where this recipe draws again."""
        return taking_states if recipe.runs else None


def taking_states(frame: Frame, pack: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """``pack``, noting the random states that are taken when the layer is entered and when autograd saves a tensor."""
    runs_at = frame.prepared.runs_at
    take_states(frame, ENTRY)
    if runs_at.keys() <= {ENTRY}:
        return pack
    next_position = itertools.count().__next__

    def take_and_pack(tensor: torch.Tensor) -> Any:
        take_states(frame, next_position())
        return pack(tensor)

    return take_and_pack


def take_states(frame: Frame, place: int) -> None:
    """Note the random state that the runs of draws anchored at this place start from."""
    for run, device in frame.prepared.runs_at.get(place, ()):
        frame.states[run] = random_state(device)
