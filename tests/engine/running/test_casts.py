"""Under autocast, casts of a layer's weights are gone when its forward ends."""

from __future__ import annotations

import pytest
import torch

import hf_ckpt
from hf_ckpt.engine.running.casts import with_uncached_casts
from hf_ckpt.measuring.peak import LiveStorages

from ...faults.injectors import AtCall
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


@pytest.mark.parametrize("at", range(2))
def test_an_interrupt_at_a_call_leaves_the_cache_on(at: int) -> None:
    """The first call is that of the function itself; there is no second one that could leave the cache off."""
    injector = AtCall(at, KeyboardInterrupt())
    with injector:
        try:
            assert with_uncached_casts(torch.is_autocast_cache_enabled) is False
        except KeyboardInterrupt:
            assert at == 0
    assert torch.is_autocast_cache_enabled()
    assert injector.met == (at == 0)


def test_the_cache_is_on_after_a_layer_that_raised() -> None:
    model, ids = build(), torch.zeros(1, 2, dtype=torch.long)
    hf_ckpt.apply(model, "full")
    model(input_ids=ids)
    model.model.layers[0].mlp.register_forward_pre_hook(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(input_ids=ids)
    assert torch.is_autocast_cache_enabled()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
