"""A trace leaves nothing fake in the caches of functions that a layer calls (``functools.lru_cache``)."""

from __future__ import annotations

import functools
import sys
from types import ModuleType

import pytest
import torch
from transformers import BeitConfig
from transformers.models.beit.modeling_beit import BeitLayer, BeitRelativePositionBias
from transformers.pytorch_utils import compile_compatible_method_lru_cache

from hf_ckpt.engine import Mode, clear_traces

from ..stacks import PlainLayer, Stack, gradients
from ..zoo import equal


@functools.lru_cache(maxsize=2)
def bounded(length: int) -> torch.Tensor:
    return torch.arange(length) * 0.5


@functools.cache
def unbounded(length: int) -> tuple[str, list[torch.Tensor]]:
    return "scales", [torch.arange(length) * 0.25]


@functools.cache
def only_one() -> object:
    return object()


class LooksUp(PlainLayer):
    """Its lengths are those of its inputs, and one more."""

    @staticmethod
    @compile_compatible_method_lru_cache(maxsize=2)
    def wrapped(length: int) -> torch.Tensor:
        return torch.arange(length) * 2.0

    @staticmethod
    @functools.lru_cache
    def of_class(length: int) -> torch.Tensor:
        return torch.arange(length) * 3.0

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        only_one()
        length = int(hidden.shape[1])
        scales = bounded(length) + unbounded(length)[1][0] + self.wrapped(length) + self.of_class(length)
        return hidden + self.down(torch.tanh(self.up(hidden)) * scales[:, None])


class LooksUpAndFails(LooksUp):
    """Its trace is given up after the look-up."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        output = super().forward(hidden)
        return output * output.abs().max().item()


@functools.cache
def noise(length: int) -> torch.Tensor:
    return torch.randn(length)


class LooksUpNoise(PlainLayer):
    """What it drew once stays, whatever is traced later."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden))) * noise(int(hidden.shape[1]))[:, None]


def test_what_a_real_run_drew_stays_in_the_cache() -> None:
    found = []
    for checkpointed in (False, True):
        noise.cache_clear()
        clear_traces()
        stack = Stack(LooksUpNoise)
        engines = stack.checkpoint() if checkpointed else []
        torch.manual_seed(3)
        found.append([each.clone() for length in (5, 5, 7, 5, 7) for each in gradients(stack, length)])
    assert equal(*found)
    assert "random numbers in a cache" in engines[0].report().reason


def test_a_function_of_another_module(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, "elsewhere", elsewhere)
    table = "@functools.cache\ndef table(n): return torch.arange(n) * 0.5"
    source = f"import functools, torch\n{table}\ndef built(n): return table(n)"
    exec(source, elsewhere.__dict__)
    monkeypatch.setitem(globals(), "built", elsewhere.built)

    class LooksUpElsewhere(PlainLayer):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden + self.down(torch.tanh(self.up(hidden))) * built(int(hidden.shape[1]))[:, None]  # noqa: F821

    clear_traces()
    stack, reference = Stack(LooksUpElsewhere), Stack(LooksUpElsewhere)
    stack.checkpoint()
    for length in (5, 7, 5):
        ours = gradients(stack, length)
        assert type(elsewhere.table(length)) is torch.Tensor
        assert equal(ours, gradients(reference, length))
    clear_traces()


def _forget() -> None:
    clear_traces()
    wrapped = [cell.cell_contents for cell in LooksUp.wrapped.__closure__ or ()]
    for function in (bounded, unbounded, LooksUp.of_class, *wrapped):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


@pytest.mark.parametrize("kind", [LooksUp, LooksUpAndFails])
@pytest.mark.parametrize("warm", [False, True])
def test_no_fake_result_stays(kind: type[PlainLayer], *, warm: bool) -> None:
    _forget()
    before = only_one()
    stack, reference = Stack(kind), Stack(kind)
    stack.checkpoint()
    if warm:
        gradients(reference, 5)
    for length in (5, 7, 5):
        assert equal(gradients(stack, length), gradients(reference, length))
    assert type(bounded(5)) is type(unbounded(7)[1][0]) is torch.Tensor
    assert only_one() is before
    clear_traces()


def test_beits_relative_positions() -> None:
    clear_traces()
    config = BeitConfig(
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=16,
        patch_size=8,
        use_relative_position_bias=True,
    )
    config._attn_implementation = "eager"

    class Layer(BeitLayer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(config)

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = super().forward(hidden, resolution=(16, 16))
            return output

    for cell in BeitRelativePositionBias.generate_relative_position_index.__closure__:
        getattr(cell.cell_contents, "cache_clear", int)()
    stack, reference = Stack(Layer), Stack(Layer)
    engines = stack.checkpoint()
    for _ in range(2):
        assert equal(gradients(stack, 5), gradients(reference, 5))
    assert engines[0].report().mode is Mode.SYMBOLIC
    clear_traces()
