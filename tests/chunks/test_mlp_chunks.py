"""``mlp(chunks)``: gradients up to rounding, less memory in a layer, one trace, and the model as it was afterwards."""

from __future__ import annotations

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    OPTConfig,
    PhiConfig,
    Qwen3Config,
    SegformerConfig,
    SegformerForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

import hf_ckpt
from hf_ckpt import SelectiveCkpt
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.chunks.function import in_chunks
from hf_ckpt.chunks.install import install
from hf_ckpt.engine.tracing.cache import TRACES
from hf_ckpt.errors import ModelStructureError, NoEffectError, PolicyError
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.measuring.verdict import check_effect
from hf_ckpt.policy.decision import Role

from ..callbacks.test_selective_ckpt import arguments, train
from ..models import batch, build, build_encoder, build_encoder_decoder, fingerprint, step
from ..planner.planner_models import conduct, nothing_used

SIZES = {
    "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "use_cache": False,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8),
    # Its norm behind the MLP saves the MLP's result, so a rebuild has to run the chunks again.
    "gemma2": Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=8),
    "gpt2": GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=256, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False
    ),
    "phi": PhiConfig(**SIZES),
}
#: Relative difference of the gradient in float32.
ROUNDING = 1e-6


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[name]).train()


def lora(model: nn.Module, dropout: float = 0.0) -> nn.Module:
    targets = ["q_proj", "gate_proj", "up_proj", "down_proj"]
    adapted = get_peft_model(model, LoraConfig(r=4, lora_dropout=dropout, target_modules=targets))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(weight, std=0.1)
    return adapted


def assert_close(ours: tuple[torch.Tensor, list], plain: tuple[torch.Tensor, list], rounding: float = ROUNDING) -> None:
    assert torch.allclose(ours[0], plain[0], rtol=rounding)
    assert [grad is None for grad in ours[1]] == [grad is None for grad in plain[1]]
    mine, theirs = (torch.cat([g.flatten() for g in grads if g is not None]) for grads in (ours[1], plain[1]))
    assert (mine - theirs).norm() <= rounding * theirs.norm()


@pytest.mark.parametrize("engine", ["traced", "torch"])
@pytest.mark.parametrize("policy", ["mlp(8)", "full+mlp(2)", "mlp(2)+attention+norm"])
@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_those_of_whole_mlps_up_to_rounding(name, policy, engine):
    model = model_of(name)
    plain = [step(model, batch(2, length)) for length in (16, 37)]
    handle = hf_ckpt.apply(model, policy, engine=engine)
    for _ in range(2):
        for length, expected in zip((16, 37), plain, strict=True):
            assert_close(step(model, batch(2, length)), expected)
    handle.restore()


@pytest.mark.parametrize("policy", ["full+mlp(2)", "budget=0.6+mlp(2)"])
def test_adapters_and_frozen_weights(policy):
    model = lora(model_of("llama"))
    plain = step(model)
    hf_ckpt.apply(model, policy)
    assert_close(step(model), plain)
    assert_close(step(model), plain)


def vit() -> nn.Module:
    sizes = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    return ViTForImageClassification(ViTConfig(**sizes, image_size=32, patch_size=8)).train()


@pytest.mark.parametrize(
    ("tower", "policy"), [(build_encoder_decoder, "mlp(4)"), (vit, "full+mlp(2)")], ids=["t5", "vit"]
)
def test_other_models(tower, policy):
    model = tower()
    for part in model.modules():
        for rate in ("p", "dropout"):
            if isinstance(getattr(part, rate, None), float):
                setattr(part, rate, 0.0)

    def run():
        model.zero_grad()
        if model.config.model_type == "vit":
            pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
            loss = model(pixel_values=pixels, labels=torch.tensor([0, 1])).loss
        else:
            loss = model(input_ids=batch(), labels=batch()).loss
        loss.backward()
        return loss.detach(), [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    plain = run()
    hf_ckpt.apply(model, policy)
    assert_close(run(), plain)
    assert_close(run(), plain)


@pytest.mark.parametrize("policy", ["mlp(4)", "full+mlp(2)"])
def test_dropout_inside_draws_the_same_masks_in_backward(policy):
    """Chunks draw other masks than a whole MLP; autograd over the same chunks is what they must equal."""
    model = lora(model_of("llama"), dropout=0.3)
    chunked, size = copy.deepcopy(model), 12 // int(policy[-2])
    for layer in model.base_model.model.model.layers:
        whole = layer.mlp.forward
        layer.mlp.forward = lambda hidden, whole=whole: torch.cat([whole(part) for part in hidden.split(size, 1)], 1)
    expected = step(model, batch(2, 12))
    hf_ckpt.apply(chunked, policy)
    for _ in range(2):
        assert_close(step(chunked, batch(2, 12)), expected)


def test_bfloat16_and_autocast():
    model = model_of("llama")
    plain = step(model, bf16=True)
    half = copy.deepcopy(model).to(torch.bfloat16)
    plain_half = step(half)
    hf_ckpt.apply(model, "full+mlp(2)")
    hf_ckpt.apply(half, "full+mlp(2)")
    assert_close(step(model, bf16=True), plain, 2e-2)
    assert_close(step(half), plain_half, 2e-2)


class Sum:
    """An MLP of one matrix whose gradient is a sum over tokens that bfloat16 cannot hold."""

    name, term = "mlp", "mlp(64)"

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.ones(1, 1, dtype=torch.bfloat16))

    def compute(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.weight

    def trained(self) -> list[torch.Tensor]:
        return [self.weight]


def test_gradients_of_weights_are_summed_in_float32():
    mlp, hidden = Sum(), torch.ones(1, 64, 1, dtype=torch.bfloat16)
    hidden[0, 0] = 256.0  # 256 + 1 is 256 in bfloat16
    in_chunks(mlp, mlp.trained(), hidden, 64).sum().backward()
    assert mlp.weight.grad.item() == 256 + 63 + 1


def test_the_peak_inside_a_layer_falls_by_sixty_per_cent():
    torch.manual_seed(0)
    sizes = SIZES | {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**sizes)).train()
    layer = model.model.layers[0].mlp
    hidden = torch.randn(2, 2048, 128)

    def peak() -> int:
        given = hidden.clone().requires_grad_()
        with PeakMeter(torch.device("cpu")) as meter:
            layer(given).square().mean().backward()
        return meter.peak_bytes

    whole = peak()
    hf_ckpt.apply(model, "full+mlp(8)")
    assert peak() <= 0.4 * whole


@pytest.mark.parametrize("budget", [5_200_000, 7_000_000])
def test_a_budget_in_bytes_holds(budget):
    torch.manual_seed(0)
    sizes = SIZES | {"hidden_size": 64, "intermediate_size": 512}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**sizes)).train()
    chunked = install(model, read_anatomy(model), ((Role.MLP, 8),), into=[])
    conduct(model, f"{budget}B", memory=nothing_used(), chunked=chunked, gradients_grow=True)
    for _ in range(3):
        with PeakMeter(torch.device("cpu")) as meter:
            step(model, batch(2, 256))
        assert meter.peak_bytes <= budget


def test_one_trace_serves_every_length():
    model = model_of("llama")
    TRACES.clear()
    handle = hf_ckpt.apply(model, "full+mlp(4)")
    for length in range(16, 46):
        step(model, batch(2, length))
    (entry,) = [entry for entry in TRACES._entries.values() if entry.symbolic]
    assert len(entry.symbolic) == 1
    assert not entry.per_shape
    with handle.measure():
        step(model)
    assert {layer.mode for layer in handle.report().layers} == {"traced symbolic"}


def test_models_that_differ_in_chunks_alone_share_no_trace():
    TRACES.clear()
    model = model_of("llama")
    for policy in ("full", "full+mlp(2)", "full+mlp(3)", "full"):
        handle = hf_ckpt.apply(model, policy)
        step(model)
        step(model)
        assert {layer.mode for layer in handle.report().layers} == {"traced symbolic"}
        handle.restore()
    assert all(not entry.mismatched for entry in TRACES._entries.values())


def test_restore_and_report():
    model = model_of("llama")
    before = fingerprint(model)
    handle = hf_ckpt.apply(model, "full+mlp(4)")
    with handle.measure():
        step(model)
        step(model)
    assert "mlp(4): 2 of 2 MLPs ran in chunks" in str(handle.report())
    handle.restore()
    assert fingerprint(model) == before


def test_evaluation_runs_as_ever():
    model = model_of("llama").eval()
    with torch.no_grad():
        plain = model(input_ids=batch()).logits
        hf_ckpt.apply(model, "mlp(4)")
        assert torch.equal(model(input_ids=batch()).logits, plain)


def test_a_weight_that_is_written_before_backward_is_an_error():
    model = model_of("llama")
    hf_ckpt.apply(model, "mlp(4)")
    loss = model(input_ids=batch(), labels=batch()).loss
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class Shifting(nn.Module):
    """An MLP that looks at the token before, as RWKV's channel mixing does, without a convolution."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.inner = mlp

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        before = nn.functional.pad(hidden, (0, 0, 1, 0))[:, :-1]
        return self.inner(0.5 * (hidden + before))


def test_an_mlp_that_looks_at_other_tokens_stops_the_first_forward():
    model = model_of("llama")
    for layer in model.model.layers:
        layer.mlp = Shifting(layer.mlp)
    handle = hf_ckpt.apply(model, "mlp(4)")
    with pytest.raises(ModelStructureError, match=r"`model\.layers\.0\.mlp` \(Shifting\) does not compute each token"):
        step(model)
    handle.restore()
    step(model)


def test_a_batch_without_enough_tokens_has_no_effect_and_says_so():
    model = model_of("llama")
    handle = hf_ckpt.apply(model, "mlp(64)")
    with handle.measure():
        step(model, batch(2, 12))
    with pytest.raises(NoEffectError, match="a batch has fewer than 64 tokens"):
        check_effect(handle.report(), handle.anatomy)


@pytest.mark.parametrize(
    "model",
    [
        lambda: build("mixtral"),
        lambda: AutoModelForCausalLM.from_config(
            GptOssConfig(hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, head_dim=8,
                         num_key_value_heads=1, num_local_experts=2, num_experts_per_tok=1, vocab_size=64)
        ),
        build_encoder,
        lambda: AutoModelForCausalLM.from_config(
            OPTConfig(hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=256)
        ),
        lambda: SegformerForImageClassification(
            SegformerConfig(num_encoder_blocks=2, depths=[1, 1], hidden_sizes=[16, 32], num_attention_heads=[1, 2],
                            sr_ratios=[4, 1], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2])
        ),
    ],
    ids=["experts", "experts called MLP", "half an MLP", "several modules", "convolution"],
)  # fmt: skip
def test_layers_without_an_mlp_to_cut_are_refused(model):
    with pytest.raises(ModelStructureError, match="needs an MLP that is a module of its own"):
        hf_ckpt.apply(model(), "full+mlp(4)")


@pytest.mark.parametrize("policy", ["mlp(0)", "mlp(a)", "mlp(2,3)"])
def test_chunks_are_one_number(policy):
    with pytest.raises(PolicyError, match=r"needs one whole number above 0: write `mlp\(2\)`"):
        hf_ckpt.apply(model_of("llama"), policy)


def test_chunks_are_not_for_some_layers():
    with pytest.raises(PolicyError, match="is about no layers"):
        hf_ckpt.apply(model_of("llama"), "mlp(4)@first(1)")


def test_trainer_takes_it_and_the_run_proves_it(tmp_path):
    def losses(*callbacks):
        trainer = train(model_of("llama"), arguments(tmp_path), *callbacks)
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    callback = SelectiveCkpt("full+mlp(4)")
    assert losses(callback) == pytest.approx(losses(), rel=1e-5)
    assert callback.report.chunked[0].ran_in_chunks == 2
