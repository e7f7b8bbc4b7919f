"""A layer that has nothing to replay is no 'no effect'; one that should and does not is."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel, Wav2Vec2Config, Wav2Vec2ForCTC

from hf_ckpt import apply
from hf_ckpt.errors import NoEffectError
from hf_ckpt.measuring.verdict import check_effect


class FirstLayersOnly(nn.Module):
    """As LLaVA with `vision_feature_layer=-2`: the last layer runs, and nothing reads it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 96}
        self.model = LlamaModel(LlamaConfig(**sizes, num_hidden_layers=3))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, output_hidden_states=True).hidden_states[-2]


def test_a_layer_that_the_loss_does_not_read() -> None:
    model = FirstLayersOnly().train()
    handle = apply(model, "full")
    with handle.measure():
        model(torch.arange(12)[None]).pow(2).sum().backward()
    check_effect(handle.report(), handle.anatomy)
    assert [layer.replays > 0 for layer in handle.report().layers] == [True, True, False]


def test_a_layer_of_which_the_loss_reads_attention_only() -> None:
    """As PI0, whose action expert reads keys and values of the language model's last layer."""
    model = FirstLayersOnly().train()
    read: list[torch.Tensor] = []
    model.model.layers[-1].self_attn.register_forward_hook(lambda module, args, output: read.append(output[0]))
    handle = apply(model, "mlp")
    for _ in range(2):
        read.clear()
        with handle.measure():
            hidden = model(torch.arange(12)[None])
            (hidden.pow(2).sum() + read[0].pow(2).sum()).backward()
    check_effect(handle.report(), handle.anatomy)
    assert [layer.replays > 0 for layer in handle.report().layers] == [True, True, False]


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
