"""An autograd Function or custom op that cannot run on fake tensors is one op: kept, or run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hf_ckpt import apply
from hf_ckpt.engine import clear_traces

from ..foreign_functions import FORMS, FusedNorm, SavesAnIntermediate, WritesItsInput, with_fused_kernels

if TYPE_CHECKING:
    from ..foreign_functions import Gated

_SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "use_cache": False, "attention_dropout": 0.1,
}  # fmt: skip


def _model(gated: Gated) -> LlamaForCausalLM:
    clear_traces()
    torch.manual_seed(0)
    return with_fused_kernels(LlamaForCausalLM(LlamaConfig(**_SIZES)), gated).train()


def _step(model: LlamaForCausalLM, length: int = 16, *, autocast: bool = False) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(1)
    ids = torch.arange(2 * length).reshape(2, length) % 61
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def _equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_op(form: str) -> None:
    model = _model(FORMS[form])
    lengths = (16, 16, 24, 16)
    expected = {length: _step(model, length) for length in lengths}
    handle = apply(model, "full")
    for length in lengths:
        assert _equal(_step(model, length), expected[length])
    with handle.measure():
        _step(model)
    report = handle.report()
    assert {layer.mode for layer in report.layers} == {"traced per shape"}, report.layers[0].reason
    assert all(layer.replays for layer in report.layers)


@pytest.mark.parametrize("form", FORMS)
def test_budgets_hold(form: str) -> None:
    model = _model(FORMS[form])
    expected = _step(model)
    plain = _held(model, "none", expected)
    for budget in (1.0, 0.8, 0.5, 0.3):
        share = _held(model, f"budget={budget}", expected) / plain
        assert budget - 0.03 <= share <= budget, (budget, share)


def _held(model: LlamaForCausalLM, policy: str, expected: list[torch.Tensor]) -> int:
    handle = apply(model, policy)
    for _ in range(2):
        assert _equal(_step(model), expected)
    with handle.measure():
        assert _equal(_step(model), expected)
    held = sum(layer.held_bytes or 0 for layer in handle.report().layers)
    handle.restore()
    return held


def test_autocast_is_as_in_the_forward() -> None:
    class Product(torch.autograd.Function):
        """Its product runs in bfloat16 under autocast."""

        @staticmethod
        def forward(ctx: object, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
            mixed = gate.float() @ torch.eye(gate.shape[-1])
            ctx.save_for_backward(mixed, up)  # type: ignore[attr-defined]
            return torch.from_numpy(mixed.float().numpy().copy()).to(gate.dtype) * up

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mixed, up = ctx.saved_tensors  # type: ignore[attr-defined]
            return gradient * up, (gradient * mixed).to(up.dtype)

    model = _model(Product.apply)
    for layer in model.model.layers:  # the fused norm is of float32 only
        layer.input_layernorm = layer.post_attention_layernorm = torch.nn.RMSNorm(32)
    expected = _step(model, autocast=True)
    handle = apply(model, "full")
    for _ in range(2):
        assert _equal(_step(model, autocast=True), expected)
    assert {layer.mode for layer in handle.report().layers} == {"traced per shape"}


def test_one_that_writes_its_input_is_left_whole() -> None:
    model = _model(WritesItsInput.apply)
    expected = _step(model)
    handle = apply(model, "full")
    for _ in range(2):
        assert _equal(_step(model), expected)
    layer = handle.report().layers[0]
    assert layer.mode == "whole-layer replay"
    assert layer.reason == "WritesItsInput cannot run again: it writes a tensor that it is given"


def test_the_class_is_as_it_was() -> None:
    before = [vars(kind).get("forward") for kind in (SavesAnIntermediate, FusedNorm)]
    model = _model(SavesAnIntermediate.apply)
    apply(model, "full")
    _step(model)
    assert [vars(kind).get("forward") for kind in (SavesAnIntermediate, FusedNorm)] == before
