"""A KV cache that a model asks for itself keeps its content, and a replay never writes it a second time."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, LlamaModel

from hf_ckpt import apply

SMALL = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "attention_dropout": 0.1, "attn_implementation": "eager",
}  # fmt: skip


class PrefixAndExpert(nn.Module):
    """As PI0: an action expert reads the keys and values of a language model through its cache."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.prefix, self.expert = LlamaModel(LlamaConfig(**SMALL)), LlamaModel(LlamaConfig(**SMALL))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        cache = self.prefix(ids, use_cache=True).past_key_values
        assert cache.get_seq_length() == ids.shape[1]
        return self.expert(ids[:, :4], past_key_values=cache, use_cache=True).last_hidden_state


def gradients(model: nn.Module) -> list[torch.Tensor | None]:
    model.zero_grad()
    torch.manual_seed(1)
    model(torch.arange(24).view(2, 12)).pow(2).sum().backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def equal(a: list[torch.Tensor | None], b: list[torch.Tensor | None]) -> bool:
    return all((x is None) == (y is None) and (x is None or torch.equal(x, y)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("engine", ["traced", "torch"])
@pytest.mark.parametrize("policy", ["full", "attention", "segments(2)", "dots_saveable"])
def test_a_cache_that_is_read_later_keeps_its_content(policy: str, engine: str) -> None:
    model = PrefixAndExpert().train()
    plain = gradients(model)
    handle = apply(model, policy, engine=engine)
    for _ in range(2):
        with handle.measure():
            assert equal(gradients(model), plain)
    assert all(layer.replays for layer in handle.report().layers)


def test_under_a_budget_too() -> None:
    model = PrefixAndExpert().train()
    plain = gradients(model)
    apply(model, "budget=0.5")
    for _ in range(3):
        assert equal(gradients(model), plain)


def test_the_cache_that_a_caller_asked_for_is_that_of_the_plain_model() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMALL | {"attention_dropout": 0.0})).train()
    ids = torch.arange(12)[None]
    plain: DynamicCache = model(ids, use_cache=True).past_key_values
    handle = apply(model, "full")
    output = model(ids, labels=ids, use_cache=True)
    output.loss.backward()
    for ours, theirs in zip(output.past_key_values.layers, plain.layers, strict=True):
        assert torch.equal(ours.keys, theirs.keys)
        assert torch.equal(ours.values, theirs.values)
    handle.restore()
