"""Gradients bitwise equal to no checkpointing on real architectures, with their dropout and LoRA's on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from hf_ckpt.engine import Mode
from hf_ckpt.policy.decision import RecomputeExcept, RecomputeLayer, RecomputeSublayers, Role, SaveableOps

from .zoo import ARCHITECTURES, batch, build, equal, install, step, uninstall

if TYPE_CHECKING:
    from hf_ckpt.policy.decision import Decision

DECISIONS: dict[str, Decision] = {
    "full": RecomputeLayer(),
    "dots_saveable": RecomputeExcept(SaveableOps("dots")),
    "dots_with_no_batch_dims_saveable": RecomputeExcept(SaveableOps("dots_with_no_batch_dims")),
    "attention": RecomputeSublayers(frozenset({Role.ATTENTION})),
    "mlp+norm": RecomputeSublayers(frozenset({Role.MLP, Role.EXPERTS, Role.NORM})),
}
FIRST = ("llama", "qwen3", "gemma3_text", "gpt2", "mixtral")


def check(architecture: str, *, lora: bool, bf16: bool, **changes: object) -> None:
    model = build(architecture, lora, **changes)
    inputs = [batch(), batch(2, 17, pad=3)]
    uninstall(model)
    expected = [step(model, x, bf16=bf16) for x in inputs]
    for name, decision in DECISIONS.items():
        engines = install(model, decision)
        for _ in range(2):
            for x, gradients in zip(inputs, expected, strict=True):
                assert equal(step(model, x, bf16=bf16), gradients), name
        for engine in engines:
            report = engine.report()
            assert (report.mode, report.reason) == (Mode.SYMBOLIC, "")
            assert report.replays
            assert report.rebuilt_bytes


@pytest.mark.parametrize("architecture", FIRST)
@pytest.mark.parametrize("lora", [False, True], ids=["full-finetune", "lora"])
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16-autocast"])
def test_gradients_are_bitwise_equal(architecture: str, lora: bool, bf16: bool) -> None:
    check(architecture, lora=lora, bf16=bf16)


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name not in FIRST])
def test_gradients_are_bitwise_equal_everywhere_else(architecture: str) -> None:
    check(architecture, lora=False, bf16=False)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name not in FIRST])
@pytest.mark.parametrize(("lora", "bf16"), [(True, False), (False, True), (True, True)])
def test_gradients_are_bitwise_equal_in_every_combination(architecture: str, lora: bool, bf16: bool) -> None:
    check(architecture, lora=lora, bf16=bf16)


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_eager_attention_keeps_its_dropout_mask(architecture: str) -> None:
    check(architecture, lora=False, bf16=False, attn_implementation="eager")


def test_bf16_weights() -> None:
    model = build("llama").to(torch.bfloat16)
    uninstall(model)
    expected = step(model, batch())
    for decision in DECISIONS.values():
        install(model, decision)
        assert equal(step(model, batch()), expected)
        assert equal(step(model, batch()), expected)
