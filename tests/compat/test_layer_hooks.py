"""Hooks on a layer run once, outside of the checkpoint, whatever the release of transformers hands on."""

from __future__ import annotations

import contextlib
import copy
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from hf_ckpt import apply
from hf_ckpt.compat.checkpointing import run_plainly, set_checkpointing

from ..faults.injectors import AtCall

IDS = torch.arange(20).reshape(2, 10)
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def model_with(ran: list[str]) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=31, use_cache=False, **SIZES)).train()
    first = model.model.layers[0]
    first.register_forward_pre_hook(lambda *_: ran.append("before"))
    first.register_forward_hook(lambda _, given, result: doubled(result, ran))
    return model


def doubled(result: Any, ran: list[str]) -> Any:
    ran.append("behind")
    return (result[0] * 2, *result[1:]) if isinstance(result, tuple) else result * 2


def gradients(model: LlamaForCausalLM) -> list[torch.Tensor]:
    model.zero_grad()
    model(input_ids=IDS, labels=IDS).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("engine", ["traced", "torch"])
def test_hooks_of_a_layer_run_once(engine: str) -> None:
    ran: list[str] = []
    model = model_with(ran)
    expected = gradients(model)
    handle = apply(model, "full", engine=engine)
    for _ in range(3):
        ran.clear()
        assert all(map(torch.equal, gradients(model), expected))
        assert ran == ["before", "behind"]
        assert "forward" not in vars(model.model.layers[0])
    with handle.measure():
        gradients(model)
    assert [layer.replays for layer in handle.report().layers] == [1, 1]
    if engine == "traced":
        assert all(layer.mode.startswith("traced") for layer in handle.report().layers), handle.report()


def test_an_error_in_a_hook_leaves_the_layer_as_it_was() -> None:
    model = model_with([])
    expected = gradients(model)
    apply(model, "full")
    refusing = model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gradients(model)
    assert "forward" not in vars(model.model.layers[1])
    refusing.remove()
    assert all(map(torch.equal, gradients(model), expected))


def test_a_copy_trains_its_own_layers() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=31, use_cache=False, **SIZES)).train()
    expected = gradients(model)
    apply(model, "full")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(map(torch.equal, gradients(twin), expected))
        assert all(p.grad is not None for p in twin.parameters())


def test_a_hook_that_calls_its_layer_again_trains_right() -> None:
    model = model_with([])
    inside: list[bool] = []

    def twice(layer: nn.Module, args: Any, kwargs: Any) -> Any:
        if inside:
            return None
        inside.append(True)
        result = layer(*args, **kwargs)
        inside.clear()
        return (result[0] if isinstance(result, tuple) else result, *args[1:]), kwargs

    model.model.layers[1].register_forward_pre_hook(twice, with_kwargs=True)
    expected = gradients(model)
    apply(model, "full", engine="torch")
    assert all(map(torch.equal, gradients(model), expected))
    assert "forward" not in vars(model.model.layers[1])


def test_an_interrupt_in_a_call_leaves_the_layer_as_it_was() -> None:
    model = model_with([])
    apply(model, "full", engine="torch")
    gradients(model)
    for at in range(6):
        with AtCall(at, KeyboardInterrupt()), contextlib.suppress(KeyboardInterrupt):
            model(input_ids=IDS)
        assert all("forward" not in vars(layer) for layer in model.model.layers)


class OwnCall(GradientCheckpointingLayer):
    """A layer that hands on a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def __call__(self, hidden: torch.Tensor, **layer: int) -> Any:
        return self._gradient_checkpointing_func(partial(self.computed, **layer), hidden)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def computed(self, hidden: torch.Tensor, layer: int) -> torch.Tensor:
        return self.inner(hidden) * layer


def test_a_layer_with_its_own_call_is_checkpointed() -> None:
    handed: list[Any] = []
    layer = OwnCall()

    def note(call: Any, *args: Any) -> Any:
        handed.append(call)
        return call(*args)

    for _ in set_checkpointing(layer, True, note):
        pass
    layer(torch.ones(1, 2), layer=3).sum().backward()
    assert handed
    assert layer.inner.weight.grad is not None


class NamesItsNumber(GradientCheckpointingLayer):
    """A layer with arguments of the names that others use for it."""

    def forward(self, hidden: torch.Tensor, layer: int, function: int) -> torch.Tensor:
        return hidden * layer * function


def test_a_layer_may_name_its_arguments_as_it_likes() -> None:
    layer = NamesItsNumber()
    for _ in set_checkpointing(layer, True, run_plainly):
        pass
    assert layer(torch.ones(1), layer=2, function=3).item() == 6
