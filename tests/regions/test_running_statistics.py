"""Running statistics inside a recomputed region are updated once a step, as without checkpointing."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import ResNetConfig, ResNetForImageClassification

from hf_ckpt import apply

from ..models import build, same, step


class BatchNormed(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(hidden.flatten(0, 1))
        return normed.view_as(hidden)


class Ranged(torch.nn.Module):
    """Another tensor in the buffer's place at every forward, as I-BERT's ranges of activations."""

    largest: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(1))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.largest = 0.9 * self.largest + 0.1 * hidden.detach().abs().max()
        return hidden.tanh()


class Scaled(torch.nn.Module):
    """Reads what stands in the buffer, and only then writes to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        scale = self.scale * 2.0
        self.scale.mul_(0.9)
        return hidden.tanh() * scale


class SpectrallyNormed(torch.nn.Module):
    """Each forward moves two vectors on, and divides the weight by what they give."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.inner(hidden).tanh()
        return normed


def model_with(norm: type[torch.nn.Module]) -> torch.nn.Module:
    model = build("llama")
    torch.manual_seed(2)
    for layer in model.model.layers:
        layer.post_attention_layernorm = norm(model.config.hidden_size)
    return model


@pytest.mark.parametrize("norm", [BatchNormed, Ranged, Scaled, SpectrallyNormed])
@pytest.mark.parametrize(
    ("policy", "engine"),
    [
        ("segments(2)", "torch"), ("segments(4)", "torch"), ("full", "torch"), ("norm", "torch"),
        ("dots_saveable", "torch"), ("full", "traced"), ("norm", "traced"),
    ],
)  # fmt: skip
def test_statistics_are_updated_once(policy: str, engine: str, norm: type[torch.nn.Module]) -> None:
    plain, model = model_with(norm), model_with(norm)
    handle = apply(model, policy, engine=engine)
    for _ in range(2):
        assert same(step(model), step(plain))
    with handle.measure():
        step(model), step(plain)
    assert sum(layer.replays for layer in handle.report().layers) > 0
    expected = dict(plain.named_buffers())
    assert all(torch.equal(buffer, expected[name]) for name, buffer in model.named_buffers())


@pytest.mark.parametrize("policy", ["full", "budget=0.5", "segments(2)"])
def test_a_convolutional_network_is_recomputed(policy: str) -> None:
    torch.manual_seed(0)
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2], "layer_type": "basic"}
    plain = ResNetForImageClassification(ResNetConfig(**sizes)).train()
    model, batch = copy.deepcopy(plain), torch.randn(2, 3, 32, 32)
    handle = apply(model, policy)
    for _ in range(3):
        with handle.measure():
            found, expected = _image_step(model, batch), _image_step(plain, batch)
        assert all(map(torch.equal, found, expected))
    assert sum(layer.replays for layer in handle.report().layers) > 0
    assert all(map(torch.equal, model.buffers(), plain.buffers()))


def _image_step(model: torch.nn.Module, batch: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    model(batch).logits.square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_large_buffers_that_are_written_later_are_one_clear_error() -> None:
    class Later(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("codebook", torch.zeros(1 << 19))
            self.writes = False

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            if self.writes:
                self.codebook.add_(hidden.detach().sum())
            return hidden

    model = build("llama")
    model.model.layers[0].post_attention_layernorm = later = Later()
    apply(model, "full", engine="torch")
    step(model)
    later.writes = True
    with pytest.raises(RuntimeError, match="wrote to large buffers of a Later"):
        step(model)
    step(model)
