"""Running statistics inside a recomputed region are updated once a step, as without checkpointing."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch.ao.quantization import FusedMovingAvgObsFakeQuantize
from transformers import ResNetConfig, ResNetForImageClassification

from hf_ckpt import apply

from ..models import build, same, step

if TYPE_CHECKING:
    from collections.abc import Callable


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


class BatchNormedWithoutACount(torch.nn.Module):
    """Its kernel writes the running statistics, and raises no version of theirs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.batch_norm(hidden.flatten(0, 1), self.mean, self.var, training=True)
        return rows.view_as(hidden)


class Quantized(torch.nn.Module):
    """Quantization-aware training: one op moves the observed range and rounds to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = FusedMovingAvgObsFakeQuantize()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rounded: torch.Tensor = self.inner(hidden)
        return rounded.tanh()


class Shares(torch.nn.Module):
    """Two modules have the same buffer: one moves it, the other divides by it."""

    class Reader(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return (hidden / self.scale).tanh()

    class Writer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(()))

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.scale.add_(hidden.detach().abs().mean())
            return hidden

    def __init__(self, width: int) -> None:
        super().__init__()
        self.writer, self.reader = Shares.Writer(), Shares.Reader()
        self.reader.register_buffer("scale", self.writer.scale)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        read: torch.Tensor = self.reader(self.writer(hidden))
        return read


class FilledByTheFirstBatch(torch.nn.Module):
    """Has no codebook until a batch comes by, and another one from then on."""

    codebook: torch.Tensor | None

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("codebook", None)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.codebook is None:
            self.codebook = hidden.detach().mean((0, 1))
            return hidden.tanh()
        self.codebook = 0.9 * self.codebook + 0.1 * hidden.detach().mean((0, 1))
        return (hidden - self.codebook).sigmoid() * hidden


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


def model_with(norm: Callable[[int], torch.nn.Module]) -> torch.nn.Module:
    model = build("llama")
    torch.manual_seed(2)
    for layer in model.model.layers:
        layer.post_attention_layernorm = norm(model.config.hidden_size)
    return model


@pytest.mark.parametrize(
    "norm",
    [
        BatchNormed, BatchNormedWithoutACount, Quantized, Ranged, Scaled, Shares, SpectrallyNormed,
        FilledByTheFirstBatch,
    ],
)  # fmt: skip
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
    for _ in range(3):
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
    with pytest.raises(RuntimeError, match=r"wrote to large buffers \(Later\.codebook\)"):
        step(model)
    step(model)


@pytest.mark.parametrize("engine", ["torch", "traced"])
def test_a_large_table_that_a_longer_sequence_replaces_is_no_write(engine: str) -> None:
    class Rotary(torch.nn.Module):
        """Its table is as long as the longest sequence so far, as in the models that bring their own code."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(4, 1 << 17), persistent=False)

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            if hidden.shape[1] > len(self.table):
                self.table = torch.arange(1.0, hidden.shape[1] + 1).unsqueeze(1).expand(-1, 1 << 17).contiguous()
            return hidden.tanh() * self.table[: hidden.shape[1], : hidden.shape[2]]

    plain, model = model_with(lambda width: Rotary()), model_with(lambda width: Rotary())
    apply(model, "full", engine=engine)
    ids = torch.arange(24).reshape(2, 12)
    for length in (4, 8, 12, 8):
        assert same(step(model, ids[:, :length]), step(plain, ids[:, :length]))
