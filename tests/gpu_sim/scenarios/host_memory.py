"""Pinned memory of a 7B's eight layers under offload: batches of several lengths, shorter ones, restored; a small host."""

from __future__ import annotations

import logging
from typing import Any

import hf_ckpt
from hf_ckpt.engine.offloading import free_memory

from .. import stand_ins
from ..counters import Span, order_errors, read
from ..models import LLAMA_7B, causal_lm, step, token_ids
from ..touched import Touched

GIB = 1 << 30
POLICY, ROWS = "budget=20GiB+offload", 4
LENGTHS = (4096, 3600, 4000, 3072, 4096)


def main(arguments: list[str]) -> dict[str, Any]:
    """What was moved and what was pinned, step by step, in bytes."""
    logging.disable(logging.WARNING)
    stand_ins.install()
    model = causal_lm({**LLAMA_7B, "num_hidden_layers": 8})
    handle = hf_ckpt.apply(model, POLICY)
    for _ in range(2):
        for length in LENGTHS:
            step(model, token_ids(ROWS, length))
    with Touched():
        found: dict[str, Any] = {"steps": [_measured(model, length) for length in LENGTHS]}
        found["short"] = [_measured(model, 256) for _ in range(36)]
        found["long_again"] = _measured(model, LENGTHS[0])
        handle.restore()
    found["restored"] = read().pinned
    found["order_errors"] = order_errors()
    found["small_host"] = _on_a_small_host(model)
    return found


def _measured(model: Any, length: int) -> dict[str, int]:
    ids = token_ids(ROWS, length)
    with Span() as span:
        step(model, ids)
    return {
        "moved": span.to_host,
        "pinned": read().pinned,
        "host_allocations": span.host_allocations,
        "synchronisations": span.synchronisations,
    }


def _on_a_small_host(model: Any) -> dict[str, int]:
    free_memory.free_bytes = lambda *_: 4 * GIB - read().pinned  # type: ignore[assignment]
    handle = hf_ckpt.apply(model, POLICY)
    for _ in range(4):
        step(model, token_ids(ROWS, LENGTHS[0]))
    found = _measured(model, LENGTHS[0])
    handle.restore()
    return found
