"""A module that writes to its own arguments is recomputed from what they held before."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import SwitchTransformersConfig, SwitchTransformersForConditionalGeneration

from hf_ckpt import apply
from hf_ckpt.engine.written_arguments import checkpointed

from ..models import build, same, step

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("engine", ["traced", "torch"])
@pytest.mark.parametrize("policy", ["mlp", "full", "segments(2)"])
def test_a_router_that_jitters_its_input_in_place(policy: str, engine: str) -> None:
    model, inputs = _switch()
    expected = [_gradients(copy.deepcopy(model), inputs) for _ in range(3)]
    handle = apply(model, policy, engine=engine)
    got = [_gradients(model, inputs)]
    with handle.measure():  # its hooks hide from torch that a saved tensor was written
        got.append(_gradients(model, inputs))
    got.append(_gradients(model, inputs))
    assert all(torch.equal(a, b) for x, y in zip(got, expected, strict=True) for a, b in zip(x, y, strict=True))
    assert sum(layer.replays for layer in handle.report().layers) > 0


def _switch() -> tuple[torch.nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    config = SwitchTransformersConfig(
        vocab_size=64, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_decoder_layers=2, num_heads=4, num_experts=2,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, router_jitter_noise=0.1,
    )  # fmt: skip
    ids = torch.randint(5, 60, (2, 12))
    return SwitchTransformersForConditionalGeneration(config).train(), {
        "input_ids": ids, "decoder_input_ids": ids, "use_cache": False
    }  # fmt: skip


def _gradients(model: torch.nn.Module, inputs: dict[str, Any]) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(1)
    model(**inputs).logits.square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def _scales_hidden(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    (args[0] if args else kwargs["hidden_states"]).mul_(1.5)


def _counts_positions(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All layers are given the same tensor, and each one's write is seen by the next."""
    positions = kwargs["position_ids"].add_(1)
    return args, kwargs | {"hidden_states": kwargs["hidden_states"] * positions.float().unsqueeze(-1)}


@pytest.mark.parametrize("policy", ["segments(2)", "segments(4)"])
@pytest.mark.parametrize("hook", [_scales_hidden, _counts_positions])
def test_layers_of_a_segment_that_write_to_what_they_are_given(hook: Callable[..., Any], policy: str) -> None:
    reference, model = build("llama"), build("llama")
    for layer in (*reference.model.layers, *model.model.layers):
        layer.self_attn.register_forward_pre_hook(hook, with_kwargs=True)
    expected = step(reference)
    handle = apply(model, policy)
    with handle.measure():
        assert same(step(model), expected)
    assert same(step(model), expected)


class Halves(torch.nn.Module):
    writes = True

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return (hidden.mul_(0.5) if self.writes else hidden * 0.5).exp()


def test_every_replay_finds_the_argument_unwritten() -> None:
    module, leaf = Halves(), torch.ones(3, requires_grad=True)
    for _ in range(2):  # before and after it is known to write
        output = checkpointed(module, (leaf * 2,), module)
        first = torch.autograd.grad(output.sum(), leaf, retain_graph=True)
        again = torch.autograd.grad(output.sum(), leaf)
        assert torch.equal(*again, *first)
        assert torch.equal(*first, torch.ones(3).exp())


def test_a_write_that_nobody_could_expect_is_one_clear_error_under_any_hooks() -> None:
    module, leaf = Halves(), torch.ones(3, requires_grad=True)
    module.writes = False
    checkpointed(module, (leaf * 2,), module)
    module.writes = True
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.detach(), lambda tensor: tensor):
        output = checkpointed(module, (leaf * 2,), module)
    with pytest.raises(RuntimeError, match="was written in place after it was saved"):
        output.sum().backward()
