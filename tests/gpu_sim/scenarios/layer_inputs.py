"""Layers of an 8B at 32k tokens, recomputed whole: their inputs on the card and in host memory."""

from __future__ import annotations

import gc
import logging
import os
from typing import Any

import torch

import hf_ckpt

from .. import stand_ins
from ..counters import Span, order_errors
from ..models import LLAMA_8B, causal_lm, step, token_ids
from ..touched import Touched

LENGTH = 32768


def main(arguments: list[str]) -> dict[str, Any]:
    """For every policy: bytes on the card when the loss is there and at the peak, copies, seconds of a step.

    ``arguments`` are the number of layers, and the policies.
    """
    logging.disable(logging.WARNING)
    stand_ins.install()
    layers, *policies = arguments
    model = causal_lm({**LLAMA_8B, "num_hidden_layers": int(layers)}, max_position_embeddings=LENGTH)
    ids = token_ids(1, LENGTH)
    return {policy: _measured(model, ids, policy) for policy in policies}


def _measured(model: Any, ids: torch.Tensor, policy: str) -> dict[str, Any]:
    model.zero_grad()
    torch.cuda.empty_cache()
    handle = hf_ckpt.apply(model, policy)
    for _ in range(4):
        step(model, ids)
    with Touched():
        step(model, ids)
        _two_forwards(model, ids)
        step(model, ids)
    step(model, ids)
    with handle.measure():
        step(model, ids)
    step(model, ids)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    with Span() as whole:
        with Span() as span:
            at_loss = _step(model, ids)
        torch.cuda.synchronize()
    found = {
        "order_errors": order_errors(),
        "at_loss": at_loss,
        "peak": torch.cuda.max_memory_allocated(),
        "input": 2 * ids.numel() * model.config.hidden_size,
        "reported": handle.report().held_bytes,
        "seconds": whole.now,
        "link": float(os.environ["SIM_GPU_LINK"]),
        "to_host": span.to_host,
        "to_device": span.to_device,
        "synchronisations": span.synchronisations,
        "device_allocations": span.device_allocations,
        "host_allocations": span.host_allocations,
    }
    handle.restore()
    return found


def _step(model: Any, ids: torch.Tensor) -> int:
    """A step; the bytes on the card between its forward and its backward."""
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    gc.collect()  # the head in chunks leaves a cycle around its weight's gradient now and then
    allocated = torch.cuda.memory_allocated()
    loss.backward()
    return allocated


def _two_forwards(model: Any, ids: torch.Tensor) -> None:
    """Two forwards before one backward."""
    model.zero_grad()
    short = ids[:, : ids.shape[1] // 4].contiguous()
    losses = [model(input_ids=given, labels=given).loss for given in (short, short)]
    torch.stack(losses).sum().backward()
