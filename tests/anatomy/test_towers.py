"""Towers by what a module takes; plain policies and budgets cover all of them, and what has no switch too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BartConfig,
    BartModel,
    CLIPConfig,
    CLIPModel,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormModel,
    Speech2TextConfig,
    Speech2TextForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from hf_ckpt import apply
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.measuring.peak import LiveStorages
from hf_ckpt.measuring.verdict import check_effect
from hf_ckpt.policy.decision import Role, Tower

if TYPE_CHECKING:
    from collections.abc import Callable

SIDES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


def whisper() -> nn.Module:
    torch.manual_seed(0)
    config = WhisperConfig(**SIDES, num_mel_bins=8, max_source_positions=64, suppress_tokens=None, use_cache=False)
    return WhisperForConditionalGeneration(config).train()


def held(model: nn.Module, **batch: torch.Tensor) -> int:
    for _ in range(2):
        with LiveStorages(torch.device("cpu")) as live:
            loss = model(**batch)[0].float().pow(2).sum()
            now: int = live.live_bytes
            loss.backward()
        model.zero_grad()
    return now


def test_whisper_holds_no_more_than_with_transformers_own_switch() -> None:
    batch = {"input_features": torch.randn(2, 8, 128), "labels": torch.arange(16).view(2, 8)}
    theirs, ours = whisper(), whisper()
    plain = held(whisper(), **batch)
    theirs.gradient_checkpointing_enable()
    apply(ours, "full")
    assert held(ours, **batch) <= 1.02 * held(theirs, **batch) < plain


def llava() -> nn.Module:
    """Its loss reads the vision tower's last but one layer."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    vision = CLIPVisionConfig(**sizes, image_size=56, patch_size=14)
    text = LlamaConfig(**sizes, num_key_value_heads=4, vocab_size=96, use_cache=False)
    torch.manual_seed(0)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_id=5, vision_feature_layer=-2)
    return LlavaForConditionalGeneration(config).train()


def test_a_vlm_holds_no_more_than_with_transformers_own_switch() -> None:
    ids = torch.arange(6, 6 + 48).view(2, 24)
    ids[:, :16] = 5
    batch = {"input_ids": ids, "labels": ids, "pixel_values": torch.randn(2, 3, 56, 56)}
    theirs, switched, plain = llava(), llava(), held(llava(), **batch)
    theirs.gradient_checkpointing_enable()
    switched.gradient_checkpointing_enable()  # as in a script that has checkpointing on already
    for ours in (switched, llava()):
        handle = apply(ours, "full")
        assert held(ours, **batch) <= 1.02 * held(theirs, **batch) < plain
        with handle.measure():
            held(ours, **batch)
        check_effect(handle.report(), handle.anatomy)


def test_towers_of_encoder_decoders_and_of_two_encoders() -> None:
    assert [stack.tower for stack in read_anatomy(whisper()).stacks] == [Tower.AUDIO, Tower.LANGUAGE]
    speech = Speech2TextForConditionalGeneration(Speech2TextConfig(**SIDES, input_feat_per_channel=8, conv_channels=16))
    assert [stack.tower for stack in read_anatomy(speech).stacks] == [Tower.AUDIO, Tower.LANGUAGE]
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    clip = CLIPModel(CLIPConfig(text_config=small, vision_config=small | {"image_size": 32, "patch_size": 16}))
    assert {stack.name.partition(".")[0]: stack.tower for stack in read_anatomy(clip).stacks} == {
        "text_model": Tower.LANGUAGE,
        "vision_model": Tower.VISION,
    }


def test_roles_by_structure() -> None:
    bart = read_anatomy(BartModel(BartConfig(**SIDES))).layers[0].info.sublayers
    assert bart[Role.MLP] == ("activation_fn", "fc1", "fc2")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    roberta = read_anatomy(RobertaPreLayerNormModel(RobertaPreLayerNormConfig(**sizes, vocab_size=96)))
    assert roberta.layers[0].info.sublayers[Role.ATTENTION] == ("attention",)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.encoder(hidden)


def albert() -> nn.Module:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    return AlbertForMaskedLM(AlbertConfig(**sizes, embedding_size=16, vocab_size=96))


@pytest.mark.parametrize("policy", ["full", "attention", "mlp", "balanced", "budget=0.5", "segments(2)"])
@pytest.mark.parametrize("kind", ["albert", "nn.TransformerEncoder"])
def test_layers_without_transformers_switch(kind: str, policy: str) -> None:
    torch.manual_seed(0)
    model = (albert() if kind == "albert" else Blocks()).train()
    batch = torch.arange(24).view(2, 12) if kind == "albert" else torch.randn(2, 12, 32)

    def step() -> list[torch.Tensor | None]:
        model.zero_grad()
        torch.manual_seed(1)
        output = model(batch)
        (output if isinstance(output, torch.Tensor) else output.logits).pow(2).sum().backward()
        return [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    plain, before = step(), {name: set(vars(module)) for name, module in model.named_modules()}
    handle = apply(model, policy)
    for _ in range(3):
        with handle.measure():
            for ours, theirs in zip(step(), plain, strict=True):
                assert (ours is None) == (theirs is None)
                assert ours is None or torch.equal(ours, theirs)
    if (kind, policy) != ("nn.TransformerEncoder", "mlp"):  # its activation is a function of the layer, not a sublayer
        assert any(layer.replays for layer in handle.report().layers)
    handle.restore()
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before


def t5() -> nn.Module:
    """Its attention has a flag of its own, which nothing reads."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 96}
    return T5ForConditionalGeneration(T5Config(**sizes))


@pytest.mark.parametrize("build", [whisper, t5])
def test_flags_say_that_checkpointing_is_on(build: Callable[[], nn.Module]) -> None:
    model = build()
    for policy in ("full", "segments(2)", "attention"):
        handle = apply(model, policy)
        flags = [m.gradient_checkpointing for m in model.modules() if hasattr(m, "gradient_checkpointing")]
        assert all(flags)
        handle.restore()
        assert not any(m.gradient_checkpointing for m in model.modules() if hasattr(m, "gradient_checkpointing"))
