"""Padded batches of many lengths: how layers are run, and how many traces that takes."""

from __future__ import annotations

from typing import Any

import torch

import hf_ckpt
from hf_ckpt.engine.tracing import cache

from .. import stand_ins
from ..models import SMALL, causal_lm

LENGTHS = range(8, 68)


def main(arguments: list[str]) -> dict[str, Any]:
    """The modes of the layers over all :data:`LENGTHS`, traces, symbolic and others. ``arguments``: the dtype."""
    stand_ins.install()
    model = causal_lm(SMALL, dtype=getattr(torch, arguments[0]))
    handle = hf_ckpt.apply(model, "full")
    traces = _counted()
    modes: set[str] = set()
    for length in LENGTHS:
        _step(model, length)
        modes |= {layer.mode for layer in handle.report().layers}
    return {"modes": sorted(modes), "symbolic": traces.count(True), "per shape": traces.count(False)}


def _counted() -> list[bool]:
    """Whether each trace that is made from here on is symbolic."""
    made: list[bool] = []
    trace_call = cache.trace_call

    def counting(*args: Any, **options: Any) -> Any:
        trace = trace_call(*args, **options)
        made.append(trace.symbolic)
        return trace

    cache.trace_call = counting
    return made


def _step(model: Any, length: int) -> None:
    ids = torch.zeros(2, length, dtype=torch.long, device="cuda")
    mask = torch.ones_like(ids)
    mask[1, length - 2 :] = 0
    model.zero_grad()
    model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()
