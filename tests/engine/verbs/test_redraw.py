"""Random numbers are drawn again in backward: the same mask to the last bit, and the generator left where it stood."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, BertConfig, T5Config

import hf_ckpt
from hf_ckpt.assignment import Assignment
from hf_ckpt.engine import Mode, plan_of
from hf_ckpt.engine.tracing.split_ops import in_single_precision
from hf_ckpt.ledger import Source
from hf_ckpt.measuring.peak import LiveStorages
from hf_ckpt.policy.decision import Decision, RecomputeExcept, RecomputeLayer, RecomputeSublayers, Role, SaveableOps

from .. import stacks
from ..stacks import PlainLayer, Stack, hidden_states
from ..zoo import batch, build, equal, install, uninstall

if TYPE_CHECKING:
    from collections.abc import Callable

DECISIONS: list[Decision] = [
    RecomputeLayer(),
    RecomputeSublayers(frozenset({Role.ATTENTION})),
    RecomputeSublayers(frozenset({Role.MLP, Role.NORM})),
    RecomputeExcept(SaveableOps("dots")),
]


def t5() -> nn.Module:
    config = T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0,
        use_cache=False,
    )  # fmt: skip
    return AutoModelForSeq2SeqLM.from_config(config).train()


def bert() -> nn.Module:
    config = BertConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    return AutoModelForMaskedLM.from_config(config).train()


def lora() -> nn.Module:
    model = build("llama", lora=True, attention_dropout=0.0)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.05
    model.enable_input_require_grads()
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lora": lora,
    "t5": t5,
    "bert": bert,
    "gpt2": functools.partial(build, "gpt2"),
}


def precision(name: str) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16) if name == "autocast" else contextlib.nullcontext()


def made(factory: Callable[[], nn.Module], dtype: str) -> nn.Module:
    torch.manual_seed(0)
    model = factory()
    return model.to(torch.bfloat16) if dtype == "bf16" else model


def inputs(length: int = 48) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in batch(2, length).items() if name != "attention_mask"}


def results(model: nn.Module, dtype: str, seed: int = 3) -> list[torch.Tensor]:
    """Loss, gradients, and where the generator stands after the step."""
    model.zero_grad()
    torch.manual_seed(seed)
    with precision(dtype):
        loss = model(**inputs()).loss
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [loss.detach(), torch.get_rng_state(), *gradients]


def held(model: nn.Module, dtype: str) -> int:
    """Bytes made by a forward that live at its end, counted from storages."""
    model.zero_grad()
    with LiveStorages(torch.device("cpu")) as counter, precision(dtype):
        loss = model(**inputs()).loss
        nbytes = counter.live_bytes
    loss.backward()
    return nbytes


@pytest.mark.parametrize("dtype", ["fp32", "autocast", "bf16"])
@pytest.mark.parametrize("name", list(MODELS))
def test_full_holds_what_transformers_own_checkpointing_holds(name: str, dtype: str) -> None:
    expected = results(made(MODELS[name], dtype), dtype)
    theirs = made(MODELS[name], dtype)
    theirs.gradient_checkpointing_enable({"use_reentrant": False})
    ours = made(MODELS[name], dtype)
    handle = hf_ckpt.apply(ours, "full")
    for _ in range(2):
        assert equal(results(ours, dtype), expected)
    assert all(layer.mode == Mode.SYMBOLIC for layer in handle.report().layers)
    assert held(ours, dtype) <= 1.02 * held(theirs, dtype)


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: type(decision).__name__)
@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gpt_neox"])
def test_accumulated_forwards_before_one_backward(architecture: str, decision: Decision) -> None:
    def accumulated(model: nn.Module) -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(5)
        model(**batch()).loss.backward()
        (model(**batch()).loss + model(**batch(3, 9)).loss).backward()
        return [torch.get_rng_state(), *(p.grad.clone() for p in model.parameters())]

    model = build(architecture, lora=False, attn_implementation="eager")
    uninstall(model)
    expected = accumulated(model)
    engines = install(model, decision)
    for _ in range(2):
        assert equal(accumulated(model), expected)
    assert all(engine.report().mode is Mode.SYMBOLIC for engine in engines)


def test_every_buffer_of_a_layer_full_of_dropout_can_be_kept_or_rebuilt_alone() -> None:
    model = build("gpt2", n_layer=1)
    uninstall(model)
    expected = results(model, "fp32")
    (engine,) = install(model, RecomputeLayer())
    assert equal(results(model, "fp32"), expected)
    ledger = engine.ledger()
    assert ledger is not None
    saved = [b.index for b in ledger.saved_activations()]
    assert sum(b.source is Source.RANDOM for b in ledger.saved_activations()) == 3
    for index in saved:
        for kept in ([index], [other for other in saved if other != index]):
            engine.plan = plan_of(ledger, Assignment.where(keep=kept))
            for _ in range(2):
                assert equal(results(model, "fp32"), expected)
    assert engine.report().mode is Mode.SYMBOLIC


@pytest.mark.parametrize(
    "kind",
    [stacks.DropsOutFused, stacks.DrawsTwiceAlike, stacks.DrawsWithoutSaving, stacks.DrawsEverything],
)
def test_all_kinds_of_draws(kind: type[PlainLayer]) -> None:
    def seeded(stack: Stack, seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [*stacks.gradients(stack), torch.get_rng_state()]

    stack, reference = Stack(kind), Stack(kind)
    (engine, _) = stack.checkpoint()
    for seed in range(3):
        assert equal(seeded(stack, seed), seeded(reference, seed))
    assert engine.report().mode is Mode.SYMBOLIC
    assert engine.report().kept_bytes == 0
    ledger = engine.ledger()
    assert ledger is not None
    saved = [b.index for b in ledger.saved_activations()]
    for index in saved:
        for kept in ([index], [other for other in saved if other != index]):
            engine.plan = plan_of(ledger, Assignment.where(keep=kept))
            for seed in range(2):
                assert equal(seeded(stack, seed), seeded(reference, seed))
    assert engine.report().mode is Mode.SYMBOLIC


def test_a_retained_graph_draws_the_same_numbers_twice() -> None:
    stack = Stack(stacks.DropsOutFused)
    stack.checkpoint()
    for _ in range(2):
        x = hidden_states()
        loss = stack(x).pow(2).sum()
        loss.backward(retain_graph=True)
        first = x.grad.clone()
        x.grad = None
        torch.manual_seed(99)
        loss.backward()
        assert torch.equal(x.grad, first)


def test_numbers_from_a_generator_of_the_layers_own_are_kept() -> None:
    stack, reference = Stack(stacks.DrawsFromItsOwn), Stack(stacks.DrawsFromItsOwn)
    engines = stack.checkpoint()
    for _ in range(2):
        for s in (stack, reference):
            for layer in s.layers:
                layer.generator.manual_seed(4)
        assert equal(stacks.gradients(stack), stacks.gradients(reference))
    ledger = engines[0].ledger()
    assert ledger is not None
    assert Source.ONCE in {b.source for b in ledger.saved_activations()}


def test_a_budget_draws_masks_again_before_it_runs_products_again() -> None:
    model, reference = build("gpt2", n_layer=4), build("gpt2", n_layer=4)
    uninstall(reference)
    expected = results(reference, "fp32")
    handle = hf_ckpt.apply(model, "budget=0.2")
    for _ in range(3):
        assert equal(results(model, "fp32"), expected)
    assert held(model, "fp32") <= 0.5 * held(reference, "fp32")
    handle.restore()


def test_the_scale_of_a_fused_dropout_on_cuda_is_rounded_as_the_kernel_does() -> None:
    for hundredths in range(1, 100):
        kept = 1.0 - hundredths / 100
        theirs = np.float32(1.0) / np.float32(kept)
        assert np.float32(1.0 / in_single_precision(kept)) == theirs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("probability", [0.05, 0.1, 0.15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_draws_the_same_masks_again(probability: float, dtype: torch.dtype) -> None:
    from hf_ckpt.engine.tracing.split_ops import apply_dropout

    x = torch.randn(64, 256, device="cuda", dtype=dtype)
    out, mask = torch.native_dropout(x, probability, True)
    assert torch.equal(apply_dropout(x, mask, probability), out)
    model = build("gpt2", resid_pdrop=probability).to("cuda", dtype)
    data = {name: tensor.cuda() for name, tensor in batch().items()}

    def run() -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(3)
        loss = model(**data).loss
        loss.backward()
        return [loss.detach(), torch.cuda.get_rng_state(), *(p.grad.clone() for p in model.parameters())]

    torch.use_deterministic_algorithms(True)
    try:
        uninstall(model)
        expected = run()
        for decision in DECISIONS:
            engines = install(model, decision)
            for _ in range(2):
                assert equal(run(), expected)
            assert all(engine.report().mode is Mode.SYMBOLIC for engine in engines)
    finally:
        torch.use_deterministic_algorithms(False)
