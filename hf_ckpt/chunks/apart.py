"""Sees whether a part of a layer computes each token apart from the others, as chunks need it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ..engine.random_state import random_state_kept
from ..engine.running.casts import with_uncached_casts
from .function import cut, tokens_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

#: By how much of its largest value a token's result may differ when fewer rows are computed; TF32 rounds most.
_ROUNDING = 1e-2
_HALF_PRECISION_ROUNDING = 5e-2


def problem_of(
    module: nn.Module, compute: Callable[..., Any], hidden: torch.Tensor, *, narrows: bool = True
) -> str | None:
    """Compute tokens at once, and the first and the last of them alone.

    Args:
        module: The part.
        compute: Its forward.
        hidden: ``[..., tokens, width]``, two tokens or more.
        narrows: Whether its result has to be as wide as what it is given, as a whole MLP's is.

    Returns:
        Why chunks would change what it computes, as a clause without subject; "" when they would not, None when the
        numbers do not show it (there are none, or some are infinite or none).
    """
    tokens = tokens_in(hidden)
    last = hidden.shape[tokens] - 1
    kept = dict.fromkeys((hidden.device, torch.device("cpu")))
    with torch.no_grad(), random_state_kept(kept), _in_eval_mode(module):
        at_once = with_uncached_casts(compute, hidden)
        if not isinstance(at_once, torch.Tensor):
            return "returns something else than one tensor"
        if problem := _problem_of_shapes(hidden.shape, at_once.shape, narrows=narrows):
            return problem
        ends = (0, last)
        alone = torch.cat([with_uncached_casts(compute, cut(hidden, tokens, token, 1)) for token in ends], tokens)
    return _compared(torch.cat([cut(at_once, tokens, token, 1) for token in ends], tokens), alone)


def _problem_of_shapes(given: torch.Size, made: torch.Size, *, narrows: bool) -> str:
    turns = f"turns {tuple(given)} into {tuple(made)}"
    if narrows and given != made:
        return f"{turns}, so it is not a whole MLP"
    return "" if given[:-1] == made[:-1] else f"{turns}, so it does not compute each token apart from the others"


def _compared(at_once: torch.Tensor, alone: torch.Tensor) -> str | None:
    finite = (at_once.isfinite() & alone.isfinite()).all(-1)
    difference, size = (at_once - alone)[finite].abs(), at_once[finite].abs()
    rounding = _ROUNDING if at_once.dtype in (torch.float32, torch.float64) else _HALF_PRECISION_ROUNDING
    if size.numel() and (difference.amax(-1) > rounding * size.amax(-1)).any():
        return "does not compute each token apart from the others"
    return "" if size.numel() and finite.all() else None


@contextmanager
def _in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Without dropout, and without a change to statistics."""
    training = [part for part in module.modules() if part.training]
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part in training:
            part.training = True
