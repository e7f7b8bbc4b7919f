"""One policy over several towers of a multimodal model, fed with images."""

from __future__ import annotations

import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from hf_ckpt import apply
from hf_ckpt.policy.decision import Planned

IMAGE, PATCHES = 5, 4


def build() -> LlavaForConditionalGeneration:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    vision = CLIPVisionConfig(**sizes, image_size=28, patch_size=14)
    text = LlamaConfig(**sizes, num_key_value_heads=4, vocab_size=96)
    torch.manual_seed(0)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_id=IMAGE, vision_feature_layer=-1)
    return LlavaForConditionalGeneration(config).train()


def step(model: LlavaForConditionalGeneration) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(6, 96, (2, 16), generator=generator)
    ids[:, :PATCHES] = IMAGE
    pixels = torch.randn(2, 3, 28, 28, generator=generator)
    model.zero_grad()
    model(input_ids=ids, pixel_values=pixels, labels=ids, use_cache=False).loss.backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def test_one_budget_spans_two_towers() -> None:
    model = build()
    plain = step(model)
    free = apply(model, "none@(language+vision)")
    with free.measure():
        step(model)
    everything = {layer.name: layer.held_bytes or 0 for layer in free.report().layers}
    free.restore()

    handle = apply(model, "budget=0.4@(language+vision)")
    assert set(handle.resolved.layers.values()) == {Planned()}
    assert handle.planner is not None
    assert len(handle.planner.layers) == 6
    step(model)
    with handle.measure():
        planned = step(model)
    report = handle.report()
    handle.restore()
    assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(plain, planned, strict=True))
    held = {layer.name: layer.held_bytes or 0 for layer in report.layers}
    assert sum(held.values()) <= 0.45 * sum(everything.values())
