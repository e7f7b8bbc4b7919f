"""Steps of optimizers whose gradients were cleared since the last backward pass: they change nothing.

`zero_grad()` leaves None, and every optimizer of torch passes over parameters without a gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import equals, is_absent, options, same
from ..events import Backward

if TYPE_CHECKING:
    from ...facts.values import Call
    from ..run import Run


def finds_no_gradients(run: Run, step: Call) -> bool:
    """Whether ``step`` comes behind a `zero_grad()` of its optimizer with no backward pass in between.

    In a loop that may be the one at the end of the iteration before.
    """
    home = step.place
    backwards = [
        it.call
        for it in run.of(Backward)
        if it.place.walk == home.walk and it.place.loops[: len(home.loops)] == home.loops
    ]
    for clearing in run.method_calls("zero_grad"):
        place = clearing.place
        beside = (place.walk, place.stack, place.loops) == (home.walk, home.stack, home.loops)
        if not beside or place.beyond(home) or not _is_of(clearing, step):
            continue
        is_before = clearing.order < step.order
        if is_before:
            filled = any(clearing.order < it.order < step.order for it in backwards)
        else:  # at the end of the iteration before
            filled = not home.loops or any(it.order > clearing.order or it.order < step.order for it in backwards)
        if not filled:
            return True
    return False


def _is_of(clearing: Call, step: Call) -> bool:
    """Whether ``clearing`` takes all gradients away that ``step`` would use."""
    to_none = clearing.argument(0, "set_to_none")
    stepping = (step.receiver, *step.args)
    own = any(same(option, clearing.receiver) for given in stepping for option in options(given))
    return own and (is_absent(to_none) is True or equals(to_none, True) is True)
