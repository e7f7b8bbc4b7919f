"""The size of a call, for models of text, of two texts, of images and of sound; and that budgets go by it."""

import pytest
import torch
from transformers import (
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from hf_ckpt import apply
from hf_ckpt.planner.batches.call_size import CallMeter, call_meter
from hf_ckpt.planner.batches.per_batch import BatchSize

from ..planner_models import build

T5 = T5Config(
    vocab_size=97,
    d_model=32,
    d_kv=16,
    d_ff=64,
    num_layers=2,
    num_heads=2,
    decoder_start_token_id=0,
    dropout_rate=0.1,
    use_cache=False,
)
VIT = ViTConfig(
    hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=3, image_size=32, patch_size=8
)
WAV2VEC2 = Wav2Vec2Config(
    hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=3, vocab_size=12, conv_dim=(8, 8),
    conv_kernel=(10, 3), conv_stride=(5, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=4, mask_time_prob=0.0,
    num_conv_pos_embedding_groups=2, layerdrop=0.0,
)  # fmt: skip
WHISPER = WhisperConfig(
    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=97, num_mel_bins=8, max_source_positions=20,
    max_target_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, use_cache=False,
)  # fmt: skip


def vit_call():
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.zeros(2, dtype=torch.long)}


def wav2vec2_call():
    return {"input_values": torch.randn(2, 400), "labels": torch.randint(1, 12, (2, 5))}


def whisper_call():
    return {"input_features": torch.randn(2, 8, 40), "labels": torch.randint(3, 97, (2, 9))}


def gradients(model, call):
    model.zero_grad()
    torch.manual_seed(1)
    model(**call).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(
    ("kind", "config", "make_call", "size"),
    [
        (ViTForImageClassification, VIT, vit_call, BatchSize(0, 0, media=6144, media_row=3072)),
        (Wav2Vec2ForCTC, WAV2VEC2, wav2vec2_call, BatchSize(0, 0, media=800, media_row=400)),
        (WhisperForConditionalGeneration, WHISPER, whisper_call, BatchSize(0, 0, 18, 9, 640, 320)),
    ],
    ids=["vit", "wav2vec2", "whisper"],
)
@pytest.mark.parametrize("budget", ["budget=0.5", "budget=100GiB"])
def test_models_of_images_and_sound_are_planned(kind, config, make_call, size, budget):
    torch.manual_seed(0)
    model, call = kind(config).train(), make_call()
    plain = gradients(model, call)
    handle = apply(model, budget)
    for _ in range(3):
        assert all(map(torch.equal, gradients(model, call), plain))
    assert list(handle.planner.book.plans) == [size]
    assert handle.planner.current is not None


def test_a_plan_for_short_targets_is_not_used_for_long_ones():
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5).train()
    source = torch.randint(3, 97, (2, 16))
    calls = {n: {"input_ids": source, "labels": torch.randint(3, 97, (2, n))} for n in (8, 128)}
    plain = {n: gradients(model, call) for n, call in calls.items()}
    handle = apply(model, "budget=1.0")
    current = {}
    for n in (8, 8, 128, 128, 8):
        assert all(map(torch.equal, gradients(model, calls[n]), plain[n]))
        current.setdefault(n, []).append(handle.planner.current)
    assert list(handle.planner.book.plans) == [BatchSize(32, 16, 2 * n, n) for n in (8, 128)]
    assert current[8][0] is None
    for plan in current[128]:
        assert plan not in (None, *current[8]), "what was learned with short targets ran with long ones"


def test_sizes_of_text():
    meter = call_meter(torch.nn.Sequential(build()))
    assert meter == CallMeter()
    ids = torch.zeros(3, 7, dtype=torch.long)
    assert meter.size((), {"input_ids": ids, "labels": ids}) == BatchSize(21, 7)
    assert meter.size((ids,), {}) == BatchSize(21, 7)
    assert meter.size((), {"inputs_embeds": torch.zeros(2, 5, 8)}) == BatchSize(10, 5)


def test_a_model_with_several_main_inputs():
    root = build()
    root.main_input_name = ["pixel_values", "task_inputs"]  # as OneFormer has them
    assert call_meter(root).size((), {"pixel_values": torch.zeros(2, 3, 4, 4)}).media == 96


def test_sizes_of_text_with_images():
    ids, patches = torch.zeros(1, 7, dtype=torch.long), torch.zeros(12, 6)
    few, many = (CallMeter().size((), {"input_ids": ids, "pixel_values": patches[:n]}) for n in (4, 12))
    assert (few.tokens, many.tokens) == (7, 7)
    assert few.fits_in(many)
    assert not many.fits_in(few)
    listed = CallMeter().size((), {"input_ids": ids, "pixel_values": [patches, patches]})
    assert listed.media == 2 * many.media


def test_sizes_of_anything_else():
    meter = CallMeter("past_values")
    assert meter.size((), {"mask": None, "past_values": torch.zeros(2, 30)}) == BatchSize(0, 0, media=60, media_row=30)
    assert CallMeter().size((), {"points": torch.zeros(2, 4, 3)}) == BatchSize(0, 0, media=24, media_row=12)
    assert CallMeter("pixel_values").size((torch.zeros(2, 3, 4, 4),), {}).media == 96
    assert CallMeter().size((), {"labels": torch.zeros(2)}) is None
