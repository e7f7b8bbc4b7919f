"""Segments on models that do something between two layers: gradients are bitwise those without checkpointing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils._python_dispatch import _len_torch_dispatch_stack
from transformers import Qwen3VLTextConfig, Qwen3VLTextModel

from hf_ckpt import apply

from ..models import batch, build, same, step

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import nn

SEGMENTS = ("segments(2)", "segments(3)", "segments(4)")


def deepstack_step(model: nn.Module) -> list[torch.Tensor]:
    """Vision features are added to the output of the first two layers."""
    model.zero_grad()
    torch.manual_seed(3)
    ids, places = torch.randint(0, 97, (2, 12)), torch.zeros(2, 12, dtype=torch.bool)
    places[:, 2:6] = True
    features = [torch.randn(8, 32, requires_grad=True) for _ in range(2)]
    embedded = model.embed_tokens(ids)
    output = model(inputs_embeds=embedded, visual_pos_masks=places, deepstack_visual_embeds=features)
    output.last_hidden_state.pow(2).sum().backward()
    return [t.grad.clone() for t in (*model.parameters(), *features)]


@pytest.mark.parametrize("policy", SEGMENTS)
def test_deepstack(policy: str) -> None:
    torch.manual_seed(0)
    config = Qwen3VLTextConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=6,
        vocab_size=97, head_dim=8, attention_dropout=0.1,
        rope_scaling={"rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": True},
    )  # fmt: skip
    model = Qwen3VLTextModel(config).train()
    model.config.use_cache = False
    reference = deepstack_step(model)
    handle = apply(model, policy)
    for _ in range(2):
        assert all(map(torch.equal, deepstack_step(model), reference))
    assert all(region.replays == region.calls > 0 for region in handle.installation.regions)
    handle.restore()
    assert all(map(torch.equal, deepstack_step(model), reference))


def between_writing(_: nn.Module, __: Any, output: torch.Tensor) -> None:
    """Keeps the output's identity; in the forward only, as code between the layers is."""
    if torch._C._current_graph_task_id() == -1:
        output[:, 2:4] *= 1.5


def between_drawing(_: nn.Module, __: Any, output: torch.Tensor) -> None:
    """As models with layer drop do before each layer."""
    if torch._C._current_graph_task_id() == -1:
        torch.rand([])


def scaling(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(output, 0.2).exp().log1p()


def saving(module: nn.Module, __: Any, output: torch.Tensor) -> None:
    """A loss of its own that is thrown away: what it saves is none of the segment's."""
    output.exp().sum()


@pytest.mark.parametrize("policy", SEGMENTS)
@pytest.mark.parametrize("hook", [between_writing, between_drawing, scaling, saving])
def test_what_happens_behind_a_layer(hook: Callable[..., Any], policy: str) -> None:
    reference, model = step(_hooked(build("llama"), hook)), build("llama")
    apply(model, policy)
    _hooked(model, hook)
    assert same(step(model), reference)


@pytest.mark.parametrize("policy", SEGMENTS)
def test_a_hook_that_changes_the_input_is_replayed_once(policy: str) -> None:
    model = build("llama")
    for layer in model.model.layers:
        layer.register_forward_pre_hook(lambda _, args: (args[0] * 1.5, *args[1:]))
    reference = step(model)
    apply(model, policy)
    assert same(step(model), reference)


def test_untouched_layers_stay_in_one_region() -> None:
    model = build("llama")
    handle = apply(model, "segments(4)")
    step(model)
    assert [region.calls for region in handle.installation.regions] == [1]


def _hooked(model: nn.Module, hook: Callable[..., Any]) -> nn.Module:
    for layer in model.model.layers:
        layer.register_forward_hook(hook)
    return model


def test_a_forward_that_an_interrupt_broke_off_inside_a_layer_leaves_nothing_for_the_next() -> None:
    model = build("llama")
    plain = step(model, batch(length=12))
    apply(model, "segments(2)")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = model.model.layers[1].mlp.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        step(model, batch(length=20))
    handle.remove()
    assert same(step(model, batch(length=12)), plain)
    assert not _len_torch_dispatch_stack()


class Counts(torch.nn.Module):
    """Counts its calls in an attribute, and computes with the count."""

    def __init__(self, shared: dict[str, float]) -> None:
        super().__init__()
        self.calls, self.written, self.shared = 0.0, torch.ones(1), shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 0.5
        return (x * self.calls).sin()


class WritesATensor(Counts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.written.add_(0.25)
        return (x * self.written.clone()).sin()


class CountsTogether(Counts):
    """All layers count in one dict."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shared["calls"] += 0.5
        return (x * self.shared["calls"]).sin()


class Draws(Counts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * random.random()).sin()


@pytest.mark.parametrize("policy", SEGMENTS)
@pytest.mark.parametrize("norm", [Counts, WritesATensor, CountsTogether, Draws])
def test_attributes_and_draws_of_the_forward(norm: type[Counts], policy: str) -> None:
    plain, model = _with_norms(norm), _with_norms(norm)
    handle = apply(model, policy)
    for _ in range(2):
        assert same(_two_forwards(model), _two_forwards(plain))
    assert all(region.replays == region.calls > 0 for region in handle.installation.regions)
    ours, theirs = (each.model.layers[-1].post_attention_layernorm for each in (model, plain))
    assert (ours.calls, ours.written, ours.shared) == (theirs.calls, theirs.written, theirs.shared)


@pytest.mark.parametrize("prepend", [False, True])
def test_a_hook_that_changes_an_attribute_is_replayed_on_what_it_found(prepend: bool) -> None:
    plain, model = _with_norms(Counts), _with_norms(Counts)
    apply(model, "segments(2)")

    def counting(layer: nn.Module, _: Any) -> None:
        layer.post_attention_layernorm.calls += 1.0

    for layer in (*plain.model.layers, *model.model.layers):
        layer.register_forward_pre_hook(counting, prepend=prepend)
    for _ in range(2):
        assert same(_two_forwards(model), _two_forwards(plain))


def _with_norms(norm: type[Counts]) -> nn.Module:
    model, shared = build("llama"), {"calls": 0.0}
    for layer in model.model.layers:
        layer.post_attention_layernorm = norm(shared)
    return model


def _two_forwards(model: nn.Module) -> tuple[torch.Tensor, list[Any]]:
    model.zero_grad()
    torch.manual_seed(1)
    random.seed(1)
    losses = [model(input_ids=ids, labels=ids).loss for ids in (batch(), batch(1, 7))]
    (losses[0] * losses[1]).backward()
    return losses[0].detach(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]
