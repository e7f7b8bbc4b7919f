"""Somebody wraps a layer's checkpointing function, as transformers' own tests do: what arrives is any callable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hf_ckpt import apply

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_wrapped_call_is_replayed() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=31, use_cache=False, **sizes)).train()
    ids = torch.arange(10).reshape(1, 10)
    model(input_ids=ids, labels=ids).loss.backward()
    expected = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    apply(model, "full")
    layer, runs = model.model.layers[0], []
    inner = layer._gradient_checkpointing_func

    def wrapped(forward: Callable[..., Any], *args: Any) -> Any:
        def counted(*inputs: Any) -> Any:
            runs.append(1)
            return forward(*inputs)

        return inner(counted, *args)

    layer._gradient_checkpointing_func = wrapped
    model(input_ids=ids, labels=ids).loss.backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(map(torch.equal, found, expected))
    assert len(runs) == 2
