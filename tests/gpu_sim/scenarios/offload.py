"""Eight layers of a 7B under a budget with offload: order of the streams, bytes on the card and on the host."""

from __future__ import annotations

import logging
from typing import Any

import torch

import hf_ckpt

from .. import stand_ins
from ..counters import Span, order_errors
from ..models import LLAMA_7B, causal_lm, step, token_ids
from ..touched import Touched

GIB = 1 << 30
ROWS, LENGTH = 4, 4096


def main(arguments: list[str]) -> dict[str, Any]:
    """What a budget takes with offload and without, and what a backward that is cut short does to the next step."""
    logging.disable(logging.WARNING)
    stand_ins.install()
    model = causal_lm({**LLAMA_7B, "num_hidden_layers": 8})
    ids = token_ids(ROWS, LENGTH)
    return {policy: _measured(model, ids, policy) for policy in arguments}


def _measured(model: Any, ids: torch.Tensor, policy: str) -> dict[str, Any]:
    model.zero_grad()
    torch.cuda.empty_cache()
    handle = hf_ckpt.apply(model, policy)
    for _ in range(6):
        step(model, ids)
    torch.cuda.reset_peak_memory_stats()
    with Touched():
        step(model, ids)
        _cut_short(model, ids)
        step(model, ids)
    with Span() as span:
        step(model, ids)
    torch.cuda.synchronize()
    assert handle.planner is not None
    plan = handle.planner.current
    found = {
        "order_errors": order_errors(),
        "planned": plan.alive if plan is not None else None,
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "offloaded": sum(r.replay.report().stored_bytes.get("offload", 0) for r in handle.installation.regions),
        "moved": span.to_host,
        "pinned": span.pinned_peak,
        "synchronisations": span.synchronisations,
        "device_allocations": span.device_allocations,
        "host_allocations": span.host_allocations,
    }
    handle.restore()
    return found


class _Cut(Exception):
    """Ends a backward."""


def _cut_short(model: Any, ids: torch.Tensor) -> None:
    """A backward that fails in the middle, while tensors are on their way back."""

    def fail(gradient: torch.Tensor) -> None:
        raise _Cut

    layer = model.model.layers[5]
    hook = layer.register_forward_hook(lambda module, args, output: output.register_hook(fail) and None)
    try:
        step(model, ids)
    except _Cut:
        pass
    finally:
        hook.remove()
