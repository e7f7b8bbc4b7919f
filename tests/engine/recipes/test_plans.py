"""What a plan keeps, read off real ledgers."""

from __future__ import annotations

import functools

import pytest
import torch

from hf_ckpt.assignment import Assignment
from hf_ckpt.engine import UntraceableError, buffer_keys, ledger_of, plan_of, select
from hf_ckpt.errors import PolicyError
from hf_ckpt.ledger import LayerLedger, Source
from hf_ckpt.policy.decision import (
    Keep,
    RecomputeExcept,
    RecomputeLayer,
    RecomputeSegment,
    RecomputeSublayers,
    Role,
    SaveableOps,
)

from ..zoo import batch, build, decoder_layers, equal, install, step, uninstall

SUBLAYERS = {
    Role.ATTENTION: ("self_attn",),
    Role.MLP: ("mlp",),
    Role.NORM: ("input_layernorm", "post_attention_layernorm"),
}


def llama_ledger(length: int = 12, dropout: float = 0.0) -> LayerLedger:
    layer = decoder_layers(build("llama", attention_dropout=dropout))[0]
    rope = (torch.zeros(1, length, 8), torch.zeros(1, length, 8))
    forward = functools.partial(layer.forward, attention_mask=None, position_embeddings=rope)
    return ledger_of(forward, torch.zeros(2, length, 32, requires_grad=True))


def producers(ledger: LayerLedger, buffers: frozenset[int]) -> list[str]:
    ops = [ledger.ops[ledger.buffers[b].producer] for b in sorted(buffers)]
    return [f"{op.module}:{op.name.split('.')[1]}" for op in ops]


def test_the_ledger_of_a_llama_layer() -> None:
    ledger = llama_ledger()
    assert ledger.class_name == "LlamaDecoderLayer"
    first = ledger.buffers[0]
    assert (first.source, first.shape, first.nbytes) == (Source.INPUT, (2, 12, 32), 2 * 12 * 32 * 4)
    assert sum(op.flops for op in ledger.ops if op.module == "mlp.up_proj") == 2 * 24 * 32 * 64
    weights = [b for b in ledger.buffers if b.source is Source.PARAMETER]
    assert sum(b.nbytes for b in weights) == 4 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64 + 2 * 32)
    assert not any(b.source is Source.RANDOM for b in ledger.buffers)


def test_sizes_grow_with_the_batch_and_indices_stay() -> None:
    short, long = llama_ledger(12), llama_ledger(24)
    assert buffer_keys(short) == buffer_keys(long)
    sizes = [sum(b.nbytes for b in ledger.saved_activations()) for ledger in (short, long)]
    assert sizes[1] == 2 * sizes[0]


def test_keys_are_unique_and_lead_back() -> None:
    ledger = llama_ledger()
    keys = buffer_keys(ledger)
    saved = [b.index for b in ledger.saved_activations()]
    assert len(set(keys.values())) == len(keys) == len(saved)
    plan = plan_of(ledger, Assignment.where(keep=saved[::2]))
    assert select(plan, ledger, {}).kept == frozenset(saved[::2])
    both = Assignment.where(keep=saved[::2], offload=saved[1::2])
    assert select(plan_of(ledger, both), ledger, {}) == both


def test_full_keeps_nothing_and_keep_everything() -> None:
    ledger = llama_ledger()
    assert select(RecomputeLayer(), ledger, {}).kept == frozenset()
    assert select(RecomputeExcept(SaveableOps("nothing")), ledger, {}).kept == frozenset()
    everything = frozenset(b.index for b in ledger.saved_activations())
    assert select(Keep(), ledger, {}).kept == everything


def test_dots_keep_what_needs_a_matmul() -> None:
    ledger = llama_ledger()
    kept = select(RecomputeExcept(SaveableOps("dots")), ledger, {}).kept
    assert "mlp.up_proj:mm" in producers(ledger, kept)
    rebuilt = ledger.rebuild_ops(kept)
    assert not [
        op
        for op in rebuilt
        if ledger.ops[op].name.split(".")[1] in ("mm", "_scaled_dot_product_flash_attention_for_cpu")
    ]
    without_batch = select(RecomputeExcept(SaveableOps("dots_with_no_batch_dims")), ledger, {}).kept
    again = {ledger.ops[op].name.split(".")[1] for op in ledger.rebuild_ops(without_batch)}
    assert "_scaled_dot_product_flash_attention_for_cpu" in again
    assert "mm" not in again


@pytest.mark.parametrize("name", ["mm", "aten.mm", "aten.mm.default", "aten::mm"])
def test_names_are_ops_however_they_are_spelled(name: str) -> None:
    ledger = llama_ledger()
    kept = select(RecomputeExcept(SaveableOps("names", (name,))), ledger, {}).kept
    assert kept == select(RecomputeExcept(SaveableOps("dots_with_no_batch_dims")), ledger, {}).kept


@pytest.mark.parametrize("role", list(SUBLAYERS))
def test_roles_rebuild_what_their_modules_made(role: Role) -> None:
    ledger = llama_ledger()
    kept = select(RecomputeSublayers(frozenset({role})), ledger, SUBLAYERS).kept
    for buffer in ledger.saved_activations():
        module = ledger.ops[buffer.producer].module
        inside = any(module == name or module.startswith(f"{name}.") for name in SUBLAYERS[role])
        assert inside == (buffer.index not in kept)
        if inside:
            modules = {ledger.ops[op].module for op in ledger.rebuild_ops(kept)}
    assert all(m == "" or any(m.split(".")[0] == n for n in SUBLAYERS[role]) for m in modules)


def test_dropout_masks_are_kept_or_drawn_again_as_the_plan_says() -> None:
    ledger = llama_ledger(dropout=0.1)
    masks = frozenset(b.index for b in ledger.saved_activations() if b.source is Source.RANDOM)
    assert masks
    assert select(RecomputeLayer(), ledger, {}).kept == frozenset()
    assert select(Assignment(), ledger, {}).kept == frozenset()
    assert select(RecomputeSublayers(frozenset({Role.MLP})), ledger, SUBLAYERS).kept >= masks
    assert select(plan_of(ledger, Assignment.where(keep=masks)), ledger, {}).kept == masks


def test_segments_need_the_other_engine() -> None:
    with pytest.raises(PolicyError, match="engine=torch"):
        select(RecomputeSegment(0, 1), llama_ledger(), {})


def test_every_single_buffer_can_be_kept_or_rebuilt_alone() -> None:
    model = build("llama")
    uninstall(model)
    expected = step(model, batch(pad=2))
    engines = install(model, RecomputeLayer())
    step(model, batch(pad=2))
    ledger = engines[0].ledger()
    assert ledger is not None
    saved = [b.index for b in ledger.saved_activations()]
    for index in saved:
        for kept in ([index], [other for other in saved if other != index]):
            for engine in engines:
                engine.plan = plan_of(ledger, Assignment.where(keep=kept))
            assert equal(step(model, batch(pad=2)), expected)
            assert equal(step(model, batch(pad=2)), expected)


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch knows CUDA")
def test_planning_for_a_device_torch_was_built_without_is_an_error() -> None:
    layer = decoder_layers(build("gpt2"))[0]
    with pytest.raises(UntraceableError, match="knows no CUDA"):
        ledger_of(layer.forward, torch.zeros(2, 4, 32), device=torch.device("cuda"))
