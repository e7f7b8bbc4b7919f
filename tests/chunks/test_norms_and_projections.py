"""``norm(chunks)`` and ``attention(chunks)``: gradients up to rounding, which parts are cut, the peak inside a layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, BertConfig, BertForMaskedLM, Gemma3TextConfig, LlamaConfig

import hf_ckpt
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.chunks.function import tokens_in
from hf_ckpt.chunks.install import install, obstacles
from hf_ckpt.errors import ModelStructureError, NoEffectError, PolicyError
from hf_ckpt.head.shape import head_shape
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.measuring.verdict import check_effect
from hf_ckpt.policy.decision import Role

from ..models import batch, build, build_encoder_decoder, fingerprint, step
from .test_mlp_chunks import CONFIGS, SIZES, assert_close, lora, model_of

ALL = "norm(4)+attention(4)+mlp(4)"


@pytest.mark.parametrize("engine", ["traced", "torch"])
@pytest.mark.parametrize("policy", ["norm(4)", "full+attention(2)", f"full+{ALL}"])
@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_those_of_whole_parts_up_to_rounding(name: str, policy: str, engine: str) -> None:
    model = model_of(name)
    plain = [step(model, batch(2, length)) for length in (16, 37)]
    handle = hf_ckpt.apply(model, policy, engine=engine)
    for _ in range(2):
        for length, expected in zip((16, 37), plain, strict=True):
            assert_close(step(model, batch(2, length)), expected)
    handle.restore()


@pytest.mark.parametrize("policy", [f"full+{ALL}", f"budget=0.6+{ALL}"])
def test_adapters_and_frozen_weights(policy: str) -> None:
    model = lora(model_of("llama"))
    plain = step(model)
    hf_ckpt.apply(model, policy)
    for _ in range(3):
        assert_close(step(model), plain)


def test_encoder_and_decoder() -> None:
    model = build_encoder_decoder()
    for part in model.modules():
        for rate in ("p", "dropout"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)

    def run() -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        model.zero_grad()
        loss = model(input_ids=batch(), labels=batch()).loss
        loss.backward()
        return loss.detach(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    plain = run()
    hf_ckpt.apply(model, "full+norm(4)+attention(4)")
    for _ in range(2):
        assert_close(run(), plain)


def cut(model: nn.Module, role: Role) -> set[str]:
    changes = []
    (parts,) = install(model, read_anatomy(model), ((role, 2),), into=changes)
    for change in reversed(changes):
        change.undo()
    return {forward.name for forward in parts.forwards}


def test_what_is_cut() -> None:
    qwen = model_of("qwen3")
    inside = {f"model.layers.{n}.{name}" for n in range(2) for name in ("input_layernorm", "post_attention_layernorm")}
    of_heads = {f"model.layers.{n}.self_attn.{name}_norm" for n in range(2) for name in "qk"}
    assert cut(qwen, Role.NORM) == inside | of_heads | {"model.norm"}
    projections = {f"model.layers.{n}.self_attn.{name}_proj" for n in range(2) for name in "qkvo"}
    assert cut(qwen, Role.ATTENTION) == projections
    # An adapter is cut with what it adapts.
    assert cut(lora(model_of("qwen3")), Role.ATTENTION) == projections
    assert len(cut(build("gpt2"), Role.ATTENTION)) == 2 * 4
    assert len(cut(build_encoder_decoder(), Role.NORM)) > 2


def test_the_tokens_of_heads_are_the_longer_dimension() -> None:
    shapes = {(2, 64, 8): -2, (64, 8): -2, (2, 64, 4, 8): -3, (2, 4, 64, 8): -2, (2, 8, 8, 8): -2}
    assert {shape: tokens_in(torch.empty(shape)) for shape in shapes} == shapes


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_norms_of_heads_run_in_chunks_of_tokens(name: str) -> None:
    """Qwen3 norms ``[batch, tokens, heads, width]``, Gemma3 ``[batch, heads, tokens, width]``."""
    config = CONFIGS[name] if name in CONFIGS else Gemma3TextConfig(**SIZES, num_key_value_heads=2, head_dim=8)
    model = AutoModelForCausalLM.from_config(config).train()
    plain = step(model, batch(2, 40))
    handle = hf_ckpt.apply(model, "full+norm(8)")
    with handle.measure():
        assert_close(step(model, batch(2, 40)), plain)
    (found,) = handle.report().chunked
    assert found.ran_in_chunks == found.parts
    assert f"norm(8): {found.parts} of {found.parts} norms ran in chunks" in str(handle.report())


def test_restore_leaves_no_trace() -> None:
    model = model_of("llama")
    before = fingerprint(model)
    handle = hf_ckpt.apply(model, f"full+{ALL}")
    assert head_shape(model, 8).norm_chunks == 4
    step(model)
    handle.restore()
    assert fingerprint(model) == before
    assert head_shape(model, 8).norm_chunks == 1


def test_a_batch_without_enough_tokens_has_no_effect_and_says_so() -> None:
    handle = hf_ckpt.apply(model := model_of("llama"), "full+attention(64)")
    with handle.measure():
        step(model, batch(2, 12))
    with pytest.raises(NoEffectError, match=r"`attention\(64\)` .* a batch has fewer than 64 tokens"):
        check_effect(handle.report(), handle.anatomy)


class Batched(nn.Module):
    """A norm over the tokens of a batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.BatchNorm = nn.BatchNorm1d(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.BatchNorm(hidden.transpose(1, 2)).transpose(1, 2)


def test_a_norm_over_tokens_is_not_cut() -> None:
    model = model_of("llama")
    for layer in model.model.layers:
        layer.input_layernorm = Batched(32)
    assert not any("input_layernorm" in name for name in cut(model, Role.NORM))


class SumNorm(nn.Module):
    """Called a norm, and looks at all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.weight * hidden / hidden.square().mean(1, keepdim=True)


def test_a_norm_that_looks_at_other_tokens_stops_the_first_forward() -> None:
    model = model_of("llama")
    for layer in model.model.layers:
        layer.input_layernorm = SumNorm()
    hf_ckpt.apply(model, "full+norm(4)")
    with pytest.raises(ModelStructureError, match=r"does not compute each token apart .* leave norm\(4\) out"):
        step(model)


def test_what_cannot_be_cut_is_refused() -> None:
    assert obstacles(read_anatomy(model_of("llama"))) == {}
    bert = BertForMaskedLM(BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))
    assert set(obstacles(read_anatomy(bert))) == {"mlp"}
    with pytest.raises(PolicyError, match=r"needs one whole number above 0: write `norm\(2\)`"):
        hf_ckpt.apply(model_of("llama"), "norm(0)")


def test_eight_chunks_halve_the_peak_of_a_step() -> None:
    """With an MLP as wide as Llama's. Attention sees all tokens, and the inputs of two layers are there."""
    torch.manual_seed(0)
    sizes = SIZES | {"hidden_size": 128, "intermediate_size": 448, "num_attention_heads": 4, "num_hidden_layers": 2}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**sizes)).train()
    ids = batch(1, 2048) % 256

    def peak(policy: str) -> int:
        handle = hf_ckpt.apply(model, policy)
        for _ in range(2):
            model.zero_grad()
            with PeakMeter(torch.device("cpu")) as meter:
                model(input_ids=ids, labels=ids).loss.backward()
        handle.restore()
        return meter.peak_bytes

    whole, chunked = peak("full+head(64)"), peak("full+head(64)+mlp(8)+norm(8)+attention(8)")
    assert chunked <= 0.5 * whole
