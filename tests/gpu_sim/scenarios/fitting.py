"""Steps of a model on the card, without a plan of ours for its memory: do they run?"""

from __future__ import annotations

import json
from typing import Any

import torch

import hf_ckpt

from .. import stand_ins
from ..models import causal_lm, step, token_ids, with_lora

STEPS = 4


def main(arguments: list[str]) -> dict[str, Any]:
    """The first error (empty: every step ran), how often the allocator gave its cache back, most bytes allocated.

    ``arguments``: the model's shape as JSON, rows of a batch, tokens in each, and the policy.
    """
    shape, rows, length, policy = json.loads(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3]
    stand_ins.install()
    model = with_lora(causal_lm(shape), dropout=0.0, autocast_adapter_dtype=True)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], fused=True)
    if policy != "none":
        hf_ckpt.apply(model, policy, optimizer=optimizer, accumulates_gradients=False)
    ids, failed = token_ids(rows, length), ""
    try:
        for _ in range(STEPS):
            step(model, ids)
            optimizer.step()
    except torch.OutOfMemoryError as error:
        failed = str(error).partition(". GPU")[0]
    allocated = torch.cuda.max_memory_allocated()
    return {"failed": failed, "retries": torch.cuda.memory_stats()["num_alloc_retries"], "allocated": allocated}
