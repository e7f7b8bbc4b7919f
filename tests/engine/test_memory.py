"""What is held and what peaks, counted from storages."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hf_ckpt.measuring.peak import LiveStorages
from hf_ckpt.policy.decision import RecomputeExcept, RecomputeLayer, RecomputeSublayers, Role, SaveableOps

from .zoo import batch, build, decoder_layers, install, step, uninstall

if TYPE_CHECKING:
    from torch import nn


def live(model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[int, int]:
    """Bytes made by a step that live after its forward, and at its peak."""
    step(model, inputs)
    step(model, inputs)
    model.zero_grad()
    with LiveStorages(torch.device("cpu")) as counter:
        loss = model(**inputs).loss
        held = counter.live_bytes
        loss.backward()
    return held, counter.peak_bytes


def use_torch_full(model: nn.Module) -> None:
    for layer in decoder_layers(model):
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=False)


@pytest.mark.parametrize("lora", [False, True], ids=["full-finetune", "lora"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "mixtral"])
def test_all_rebuilt_holds_and_peaks_no_more_than_torch_full(architecture: str, lora: bool) -> None:
    size: dict[str, Any] = {"num_hidden_layers": 4, "attention_dropout": 0.0}
    model, inputs = build(architecture, lora, **size), batch(2, 64)
    use_torch_full(model)
    theirs = live(model, inputs)
    install(model, RecomputeLayer())
    ours = live(model, inputs)
    # Which experts a token goes to is chosen once: an int64 for each expert, token and layer.
    chosen = 8 * getattr(model.config, "num_experts_per_tok", 0) * inputs["input_ids"].numel() * 4
    assert ours[0] <= theirs[0] + chosen
    assert ours[1] <= theirs[1] + chosen


@pytest.mark.parametrize(
    "decision",
    [RecomputeLayer(), RecomputeExcept(SaveableOps("dots")), RecomputeSublayers(frozenset({Role.MLP, Role.NORM}))],
)
def test_the_report_says_what_is_held(decision: Any) -> None:
    model, inputs = build("llama"), batch(2, 32)
    uninstall(model)
    plain, _ = live(model, inputs)
    engines = install(model, decision)
    held, _ = live(model, inputs)
    reports = [engine.report() for engine in engines]
    assert plain - held == sum(report.rebuilt_bytes for report in reports)
    ledgers = [engine.ledger() for engine in engines]
    for report, ledger in zip(reports, ledgers, strict=True):
        assert ledger is not None
        saved = sum(buffer.nbytes for buffer in ledger.saved_activations())
        assert saved == report.kept_bytes + report.rebuilt_bytes


def test_bf16_copies_of_frozen_weights_are_rebuilt() -> None:
    """Under autocast, autograd saves a bf16 copy of every frozen weight of every layer."""
    model, inputs = build("llama", lora=True), batch(2, 4)
    engines = install(model, RecomputeLayer())
    step(model, inputs, bf16=True)
    weights = sum(p.numel() for n, p in decoder_layers(model)[0].named_parameters() if "base_layer.weight" in n)
    assert engines[0].report().rebuilt_bytes > 2 * weights
