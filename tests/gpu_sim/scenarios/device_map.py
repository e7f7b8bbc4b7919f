"""A model whose layers stand on two cards, one after the other: bytes at the peak on each, under policies."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import dispatch_model
from accelerate.utils import get_balanced_memory, infer_auto_device_map

import hf_ckpt

from .. import stand_ins
from ..models import causal_lm, token_ids
from ..shapes import LENGTH, ROWS, SHAPE

STEPS = 3


def main(arguments: list[str]) -> dict[str, list[int]]:
    """For every policy, what was allocated at most on each card."""
    stand_ins.install()
    return {policy: _peaks(policy) for policy in arguments}


def _peaks(policy: str) -> list[int]:
    model = causal_lm(SHAPE, device="cpu")
    cards = range(torch.cuda.device_count())
    room = {card: torch.cuda.mem_get_info(card)[1] for card in cards}
    whole = list(model._no_split_modules)
    places = infer_auto_device_map(model, get_balanced_memory(model, room, whole), whole)
    model = dispatch_model(model, places)
    handle = None if policy == "none" else hf_ckpt.apply(model, policy)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = token_ids(ROWS, LENGTH)
    for _ in range(STEPS):
        for card in cards:
            torch.cuda.reset_peak_memory_stats(card)
        _step(model, ids)
        optimizer.step()
        model.zero_grad()
    found = [torch.cuda.max_memory_allocated(card) for card in cards]
    if handle is not None:
        handle.restore()
    return found


def _step(model: Any, ids: torch.Tensor) -> None:
    loss = model(input_ids=ids, labels=ids).loss  # what else it returned goes, as in a Trainer
    loss.backward()
