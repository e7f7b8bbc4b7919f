"""Why a call of a part stays whole: where chunks would lose a gradient, or draw other random numbers in backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..compat.adapters import counts_tokens
from ..compat.wrappers import gathers_parameters, is_zero3_shard
from ..engine.random_state import can_redraw
from .function import tokens_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn


def why_whole(
    parts: Sequence[nn.Module],
    weights: list[torch.Tensor],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    chunks: int,
) -> str:
    """Why this call cannot run in chunks, in a clause; empty when it can.

    Args:
        parts: Its module and all modules in it.
        weights: The tensors that it computes with.
        args: What it is given.
        kwargs: What it is given by name.
        chunks: In how many chunks it should run.
    """
    if len(args) != 1 or kwargs or not isinstance(args[0], torch.Tensor) or args[0].dim() < 2:
        return "it is given something else than one tensor of hidden states"
    return _because_of_modules(parts) or _because_of_weights(weights) or _because_of_input(args[0], weights, chunks)


def _because_of_modules(parts: Sequence[nn.Module]) -> str:
    # Such a unit is sharded again before its gradients are asked for, and ranks with short batches gather less often.
    if any(map(gathers_parameters, parts)):
        return "FSDP gathers a part of it alone: make each decoder layer one FSDP unit"
    if any(map(counts_tokens, parts)):
        return "its aLoRA adapter counts tokens from the end of the sequence"
    return ""


def _because_of_weights(weights: list[torch.Tensor]) -> str:
    # FSDP1 sets views of its flat parameter in the place of parameters (torch/distributed/fsdp/_flat_param.py).
    if any(w.requires_grad and w._base is not None and w._base.is_leaf for w in weights):
        return "its weights are views of one flat parameter, as FSDP1 makes them: use FSDP2 (`fsdp_version: 2`)"
    if any(map(is_zero3_shard, weights)):
        return "DeepSpeed ZeRO-3 gathers its weights one by one: use ZeRO-2"
    return ""


def _because_of_input(hidden: torch.Tensor, weights: list[torch.Tensor], chunks: int) -> str:
    if not can_redraw(hidden.device):
        return f"random numbers on {hidden.device.type} cannot be drawn again in backward"
    if hidden.shape[tokens_in(hidden)] < chunks:
        return f"a batch has fewer than {chunks} tokens (the last dimension but one of its input)"
    # It would have no graph at all, and with it no backward that finds what the part trains without holding it.
    if torch.is_grad_enabled() and not any(tensor.requires_grad for tensor in (hidden, *weights)):
        return "no gradient goes through it"
    return ""
