"""Whether code runs without gradients: `torch.no_grad()` and its like, as the walk through the program met them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values.grad_mode import GradMode

if TYPE_CHECKING:
    from ...facts.values import Call


def is_gradient_free(call: Call) -> bool:
    """Whether gradients are off at the call, at least on one of the ways that the program shows."""
    return call.grad_mode in (GradMode.OFF, GradMode.EITHER)


def is_always_gradient_free(call: Call) -> bool:
    """Whether gradients are certainly off at the call."""
    return call.grad_mode is GradMode.OFF


def may_lack_graph(forward: Call, backward: Call) -> bool:
    """Whether gradients may be off at ``forward``; they are on in the state that ``backward`` runs in."""
    return is_gradient_free(forward) or (forward.grad_mode is GradMode.OPEN and forward.grad is not backward.grad)
