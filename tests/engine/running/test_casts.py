"""Under autocast, casts of a layer's weights are gone when its forward ends."""

from __future__ import annotations

import pytest
import torch

import hf_ckpt
from hf_ckpt.measuring.peak import LiveStorages

from ...planner.planner_models import build


def bytes_alive_after_layers(policy: str) -> int:
    """What autocast and autograd hold when the last layer's forward ends, in the second step."""
    model, ids, found = build(), torch.zeros(1, 2, dtype=torch.long), []
    handle = hf_ckpt.apply(model, policy)
    for _ in range(2):
        live = LiveStorages(torch.device("cpu"))
        hook = model.model.norm.register_forward_pre_hook(lambda *_, live=live: found.append(live.live_bytes))
        with live, torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        hook.remove()
    handle.restore()
    return found[-1]


@pytest.mark.parametrize("policy", ["full", "attention+mlp"])
def test_autocast_keeps_no_second_model_of_layers_that_are_recomputed(policy: str) -> None:
    model = build()
    casts = sum(p.numel() * 2 for layer in model.model.layers for p in layer.parameters() if p.dim() == 2)
    assert bytes_alive_after_layers("none") >= casts
    assert bytes_alive_after_layers(policy) < casts // 3


def test_the_cache_is_as_it_was_after_a_forward() -> None:
    model, ids = build(), torch.zeros(1, 2, dtype=torch.long)
    hf_ckpt.apply(model, "full")
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=ids)
        assert torch.is_autocast_cache_enabled()
