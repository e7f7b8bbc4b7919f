"""A small Llama under policies: how layers are run, and what a step costs once all is planned."""

from __future__ import annotations

from typing import Any

import torch

import hf_ckpt

from .. import stand_ins
from ..counters import Span
from ..models import SMALL, causal_lm, in_four_bits, sharded, step, token_ids, with_lora

MADE = {
    "whole": lambda: causal_lm(SMALL),
    "four bits": lambda: with_lora(in_four_bits(causal_lm(SMALL, device="meta"))),
    "sharded": lambda: sharded(causal_lm(SMALL, device="meta"), torch.bfloat16),
}


def main(arguments: list[str]) -> dict[str, Any]:
    """For every policy: the modes of its layers, launches, synchronisations, device allocations, bytes at the peak.

    ``arguments`` are how the model stands on the card, and the policies.
    """
    stand_ins.install()
    model = MADE[arguments[0]]()
    ids, found = token_ids(4, 512), {}
    for policy in arguments[1:]:
        name, _, engine = policy.partition("/")
        handle = hf_ckpt.apply(model, name, engine=engine or "traced")
        for _ in range(3):
            step(model, ids)
        torch.cuda.reset_peak_memory_stats()
        with Span() as span:
            step(model, ids)
        found[policy] = {
            "modes": sorted({layer.mode for layer in handle.report().layers}),
            "launches": span.launches,
            "synchronisations": span.synchronisations,
            "device_allocations": span.device_allocations,
            "peak": torch.cuda.max_memory_allocated(),
        }
        handle.restore()
    return found
