"""What the backward of one layer of an 8B takes at its worst moment, its parts in so many pieces of the tokens."""

from __future__ import annotations

import warnings

import torch

import hf_ckpt

from .. import stand_ins
from ..judge.cell import free
from ..models import LLAMA_8B, causal_lm, step, token_ids


def main(arguments: list[str]) -> dict[str, int]:
    """Bytes by policy; ``arguments`` are the tokens of the sequence, and policies."""
    warnings.simplefilter("ignore")
    stand_ins.install()
    torch.backends.cuda.enable_cudnn_sdp(False)  # torch's FlashAttention stands for flash-attn
    length, *policies = arguments
    return {policy: _risen(int(length), policy) for policy in policies}


def _risen(length: int, policy: str) -> int:
    """By how many bytes the card's allocated ones rise from the gradient of the layer's output to that of its input."""
    free()
    model = causal_lm({**LLAMA_8B, "num_hidden_layers": 1}, max_position_embeddings=length)
    hf_ckpt.apply(model, policy)
    found: list[int] = []

    def begins(_: torch.Tensor) -> None:
        torch.cuda.reset_peak_memory_stats()
        found.append(torch.cuda.memory_allocated())

    def ends(_: torch.Tensor) -> None:
        found.append(torch.cuda.max_memory_allocated())

    model.model.norm.register_forward_pre_hook(lambda _, args: args[0].register_hook(begins) and None)
    model.model.embed_tokens.register_forward_hook(lambda _, args, out: out.register_hook(ends) and None)
    for _ in range(2):  # the first step compares what is rebuilt with what was dropped
        found.clear()
        step(model, token_ids(1, length))
    before, most = found
    return most - before
