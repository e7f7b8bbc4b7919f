"""Quantised weights: packed integers whose meaning hangs on attributes of the weight, or on an object of the module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hf_ckpt.engine import Mode, clear_traces
from hf_ckpt.policy.decision import RecomputeExcept, RecomputeLayer, SaveableOps

from ..stacks import PlainLayer, Stack, gradients
from ..zoo import batch, build, decoder_layers, equal, install, step, uninstall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hf_ckpt.policy.decision import Decision


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    clear_traces()
    yield
    clear_traces()


@dataclass
class Scales:
    scale: torch.Tensor
    shape: torch.Size


class Packed(nn.Parameter):
    """As bitsandbytes' Params4bit: integers, and an attribute that says what they mean."""

    def __new__(cls, weight: torch.Tensor) -> Packed:
        scale = weight.abs().amax() / 127
        packed: Any = torch.Tensor._make_subclass(cls, (weight / scale).round().to(torch.int8).view(-1), False)
        packed.state = Scales(scale, weight.shape)
        return packed


class _PackedLinear(torch.autograd.Function):
    """Keeps its weight in an attribute of the context, out of the sight of saved-tensor hooks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, state: Scales) -> torch.Tensor:
        ctx.weight = packed, state
        return x @ (packed.view(state.shape) * state.scale).t()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        packed, state = ctx.weight
        return grad @ (packed.view(state.shape) * state.scale), None, None


class HasPackedWeights(PlainLayer):
    def __init__(self) -> None:
        super().__init__()
        self.packed = Packed(torch.linspace(-1, 1, 32 * 16).view(32, 16))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        up: torch.Tensor = _PackedLinear.apply(hidden, self.packed, self.packed.state)
        return hidden + self.down(torch.tanh(self.up(hidden) * up))


class MovesItsStateOnce(HasPackedWeights):
    """As bitsandbytes' Linear8bitLt: the first forward moves the scales from the weight to the module's state."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Scales(None, None)  # type: ignore[arg-type]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.packed.state is not None:
            self.state.scale, self.state.shape = self.packed.state.scale, self.packed.state.shape
            self.packed.state = None
        up: torch.Tensor = _PackedLinear.apply(hidden, self.packed, self.state)
        self.packed.data = self.packed.data.clone()
        return hidden + self.down(torch.tanh(self.up(hidden) * up))


@pytest.mark.parametrize("kind", [HasPackedWeights, MovesItsStateOnce])
def test_a_weight_with_attributes_is_traced(kind: type[PlainLayer]) -> None:
    stack, reference = Stack(kind), Stack(kind)
    engines = stack.checkpoint()
    for length in (5, 5, 7, 9):
        assert equal(gradients(stack, length), gradients(reference, length))
    assert [engine.report().mode for engine in engines] == [Mode.SYMBOLIC] * 2
    assert all(engine.report().replays and not engine.report().kept_bytes for engine in engines)


def test_another_scale_is_another_state() -> None:
    stack, reference = Stack(HasPackedWeights), Stack(HasPackedWeights)
    engines = stack.checkpoint()
    for factor in (1.0, 1.0, 2.0, 2.0):
        for layer in (*stack.layers, *reference.layers):
            layer.packed.state = Scales(layer.packed.state.scale * factor, layer.packed.state.shape)
        assert equal(gradients(stack), gradients(reference))
    assert engines[0].report().mode is Mode.SYMBOLIC


def quantised(kind: str, *, nested: bool = False) -> nn.Module:
    """A tiny Llama with LoRA (dropout 0.1) over weights of 4 or 8 bits."""
    bnb = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from peft import LoraConfig, get_peft_model

    model = build("llama", hidden_size=64, attention_dropout=0.0).to(torch.bfloat16)
    for module in list(decoder_layers(model)):
        for parent in list(module.modules()):
            for name, linear in list(parent.named_children()):
                if isinstance(linear, nn.Linear):
                    setattr(parent, name, _quantised_linear(bnb, linear, kind, nested))
    config = LoraConfig(r=4, lora_dropout=0.1, target_modules="all-linear", init_lora_weights=False)
    return get_peft_model(model, config).train()


def _quantised_linear(bnb: Any, linear: nn.Linear, kind: str, nested: bool) -> nn.Module:
    sizes = linear.in_features, linear.out_features
    if kind == "8bit":
        new = bnb.nn.Linear8bitLt(*sizes, bias=False, has_fp16_weights=False)
        new.weight = bnb.nn.Int8Params(linear.weight.data, requires_grad=False, has_fp16_weights=False)
    else:
        new = bnb.nn.Linear4bit(*sizes, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
        new.weight = bnb.nn.Params4bit(
            linear.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=nested, module=new
        )
    return new.to("cpu")


@pytest.mark.parametrize(("kind", "nested"), [("nf4", False), ("nf4", True), ("8bit", False)])
def test_lora_over_bitsandbytes_weights_is_traced(kind: str, nested: bool) -> None:
    model, reference = quantised(kind, nested=nested), quantised(kind, nested=nested)
    uninstall(reference)
    plans: list[Decision] = [RecomputeLayer(), RecomputeExcept(SaveableOps("dots"))]
    for plan in plans if not nested else plans[:1]:
        engines = install(model, plan)
        for length in (12, 12, 17):
            assert equal(step(model, batch(2, length)), step(reference, batch(2, length))), (plan, length)
        reports = [engine.report() for engine in engines]
        assert [(report.mode, report.reason) for report in reports] == [(Mode.SYMBOLIC, "")] * 2
        assert all(report.replays and report.rebuilt_bytes for report in reports)


def test_a_budget_with_room_replays_nothing_of_qlora() -> None:
    import hf_ckpt

    model, reference = quantised("nf4"), quantised("nf4")
    uninstall(reference)
    handle = hf_ckpt.apply(model, "budget=1.0")
    for _ in range(3):
        assert equal(step(model, batch()), step(reference, batch()))
    with handle.measure():
        step(model, batch())
    report = handle.report()
    assert report.recomputed_share == 0
    assert {layer.reason for layer in report.layers} == {""}
    handle.restore()
