"""A dry forecast equals what a real step holds, to the byte."""

from __future__ import annotations

import pytest
import torch

from hf_ckpt import apply
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.measuring.dry_run import dry_ledgers
from hf_ckpt.measuring.forecast import ForecastInputs, forecast
from hf_ckpt.planner.budget import DeviceMemory
from hf_ckpt.planner.calibration.calibrate import calibration

from ..models import batch, build, step


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "mixtral"])
def test_forecast_is_what_a_step_holds(name: str, lora: bool) -> None:
    model, ids = build(name, lora=lora), batch(2, 24)
    anatomy, device = read_anatomy(model), torch.device("cpu")
    dry = build(name, lora=lora).to("meta")
    ledgers = dry_ledgers(dry, read_anatomy(dry), ids.to("meta"), device)
    inputs = ForecastInputs(anatomy, ledgers, None, False, calibration(device), DeviceMemory(None, 0), 0)
    for policy in ("none", "full", "attention", "mlp"):
        handle = apply(model, policy)
        step(model, ids)
        with handle.measure():
            step(model, ids)
        held = sum(layer.held_bytes or 0 for layer in handle.report().layers)
        handle.restore()
        # The meter counts what all layers share (mask, rotary tables) with the first layer; a forecast counts it apart.
        shared = sum(t.numel() * t.element_size() for t in _shared(model, ids))
        assert abs(held - forecast(inputs, handle.resolved).held) <= shared, policy


def _shared(model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}

    def note(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        for value in torch.utils._pytree.tree_leaves(kwargs):
            if isinstance(value, torch.Tensor):
                found[value.untyped_storage().data_ptr()] = value

    hook = read_anatomy(model).layers[0].module.register_forward_pre_hook(note, with_kwargs=True)
    step(model, ids)
    hook.remove()
    return list(found.values())
