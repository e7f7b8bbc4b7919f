"""Traced replay: per saved tensor keep, rebuild or offload, on untouched layers, with bitwise equal gradients.

The forward runs the layer as it is, under saved-tensor hooks. A trace of the layer, made once on fake tensors, knows
every saved tensor by its position; backward runs the slice of that trace that makes the dropped ones again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .layer.calls import resolve_call
from .recipes.plans import Plan, buffer_keys, plan_of, select
from .replay import TracedReplay
from .report import EngineReport, Mode
from .tracing.cache import TRACES
from .tracing.ledgers import SizedTrace, ledger_at
from .tracing.trace_call import trace_call
from .untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ..ledger import LayerLedger

__all__ = [
    "EngineReport",
    "Mode",
    "Plan",
    "SizedTrace",
    "TracedReplay",
    "UntraceableError",
    "buffer_keys",
    "clear_traces",
    "ledger_of",
    "plan_of",
    "select",
]


def ledger_of(call: Callable[..., Any], *args: Any, device: torch.device | None = None) -> LayerLedger:
    """Trace one call of a layer without running it. Autocast counts if it is on.

    Args:
        call: What the layer passes to its ``_gradient_checkpointing_func``, or ``layer.forward`` (with
            ``functools.partial`` for keyword arguments).
        *args: The layer's positional arguments. Only metadata is read: meta tensors and meta layers will do.
        device: The device to plan for; None for that of the tensors.

    Returns:
        The ledger at the shapes of ``args``, in bytes and FLOPs.

    Raises:
        UntraceableError: No trace of the layer would be faithful; its ``reason`` says why.
    """
    trace = trace_call(resolve_call(call, args), symbolic=False, device=device)
    return ledger_at(trace, {})


def clear_traces() -> None:
    """Forget every trace of this process."""
    TRACES.clear()
