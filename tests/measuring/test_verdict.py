"""A layer that has nothing to replay is no 'no effect'; one that should and does not is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel, Wav2Vec2Config, Wav2Vec2ForCTC

from hf_ckpt import apply
from hf_ckpt.errors import NoEffectError
from hf_ckpt.measuring.verdict import check_effect

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 96}


class FirstLayersOnly(nn.Module):
    """As LLaVA with `vision_feature_layer=-2`: the last layer runs, and nothing reads it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = LlamaModel(LlamaConfig(**SIZES, num_hidden_layers=3))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, output_hidden_states=True).hidden_states[-2]


def test_a_layer_that_the_loss_does_not_read() -> None:
    model = FirstLayersOnly().train()
    handle = apply(model, "full")
    with handle.measure():
        model(torch.arange(12)[None]).pow(2).sum().backward()
    check_effect(handle.report(), handle.anatomy)
    assert [layer.replays > 0 for layer in handle.report().layers] == [True, True, False]


@pytest.mark.parametrize("policy", ["mlp", "attention", "attention+mlp"])
def test_a_layer_of_which_the_loss_reads_keys_only(policy: str) -> None:
    """As PI0, whose action expert reads keys and values of the language model's last layer."""
    model = FirstLayersOnly().train()
    read: list[torch.Tensor] = []
    model.model.layers[-1].self_attn.k_proj.register_forward_hook(lambda module, args, output: read.append(output))
    handle = apply(model, policy)
    for _ in range(2):
        read.clear()
        with handle.measure():
            hidden = model(torch.arange(12)[None])
            (hidden.pow(2).sum() + read[0].pow(2).sum()).backward()
    check_effect(handle.report(), handle.anatomy)
    assert [layer.replays > 0 for layer in handle.report().layers] == [True, True, False]


@pytest.mark.parametrize("policy", ["full", "mlp"])
def test_a_part_that_nothing_reads_excuses_no_layer(policy: str) -> None:
    """As BART's decoder alone, whose layers have a cross-attention that never runs."""
    model = LlamaModel(LlamaConfig(**SIZES, num_hidden_layers=3)).train()
    for layer in model.layers:
        layer.encoder_attn = nn.Linear(32, 32)
    handle = apply(model, policy)
    for _ in range(2):
        model.zero_grad()
        with handle.measure():
            model(torch.arange(12)[None]).last_hidden_state.pow(2).sum().backward()
    report = handle.report()
    check_effect(report, handle.anatomy)
    # A layer whose region broke: recorded, reached by backward, never replayed.
    silent = tuple(replace(row, replays=0) if row.name == "layers.1" else row for row in report.layers)
    with pytest.raises(NoEffectError, match=r"no effect on layers\.1"):
        check_effect(replace(report, layers=silent), handle.anatomy)


def test_a_loss_that_reads_no_layer_is_no_effect() -> None:
    model = FirstLayersOnly().train()
    handle = apply(model, "full")
    with handle.measure():
        model(torch.arange(12)[None])
    with pytest.raises(NoEffectError, match="backward never reached it"):
        check_effect(handle.report(), handle.anatomy)


def speech(layerdrop: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    config = Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=37, vocab_size=32,
        conv_dim=(32, 32), conv_stride=(4, 4), conv_kernel=(8, 8), layerdrop=layerdrop, mask_time_prob=0.0,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    return Wav2Vec2ForCTC(config).train()


@pytest.mark.parametrize("policy", ["dots_saveable", "attention", "mlp"])
def test_layers_with_nothing_to_rebuild_and_stacks_without_the_role(policy: str) -> None:
    model = speech()
    handle = apply(model, policy)
    with handle.measure():
        model(torch.randn(2, 1024)).logits.pow(2).sum().backward()
    check_effect(handle.report(), handle.anatomy)
    assert all(layer.replays for layer in handle.report().layers if ".encoder." in layer.name)


def test_segments_close_whatever_layer_is_dropped() -> None:
    model, sound = speech(layerdrop=0.5), torch.randn(2, 1024)

    def step(seed: int) -> list[torch.Tensor | None]:
        torch.manual_seed(seed)
        model.zero_grad()
        logits = model(sound).logits
        assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
        logits.pow(2).sum().backward()
        return [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    plain = [step(seed) for seed in range(6)]
    apply(model, "segments(2)")
    for seed in range(6):
        for ours, theirs in zip(step(seed), plain[seed], strict=True):
            assert (ours is None) == (theirs is None)
            assert ours is None or torch.equal(ours, theirs)
