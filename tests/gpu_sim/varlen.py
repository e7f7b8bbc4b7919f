"""Stands in for the package flash_attn on a simulated card: its varlen attention, on the kernel that torch has of it.

As there (flash_attn/flash_attn_interface.py) it is an op of a library with a fake kernel, inside of an autograd Function
that saves queries, keys, values, output, the sums of its rows, where sequences begin and the state of random numbers.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.autograd import Function

_aten = torch.ops.aten
_Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def install() -> None:
    """Let transformers find it; once a process, before a model is built."""
    from transformers import modeling_flash_attention_utils as flash

    package, padding = ModuleType("flash_attn"), ModuleType("flash_attn.bert_padding")
    package.__spec__ = ModuleSpec("flash_attn", None, is_package=True)
    vars(package).update(
        flash_attn_varlen_func=flash_attn_varlen_func, flash_attn_func=_missing, flash_attn_with_kvcache=_missing
    )
    vars(padding).update(pad_input=_missing, unpad_input=_missing)
    sys.modules.update({"flash_attn": package, "flash_attn.bert_padding": padding})
    # transformers asks the metadata of installed packages, once where it is imported.
    flash.is_flash_attn_2_available = _yes
    flash.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]["general_availability_check"] = _yes


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _missing(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("the stand-in for flash_attn has attention of packed sequences alone")


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
) -> torch.Tensor:
    """Attention of packed sequences: (tokens, heads, width)."""
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    out: torch.Tensor = _Varlen.apply(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, scale, causal
    )
    return out


@torch.library.custom_op("hf_ckpt_sim::varlen_forward", mutates_args=(), device_types="cuda")
def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts_q: torch.Tensor, starts_k: torch.Tensor,
    longest_q: int, longest_k: int, dropout: float, scale: float, causal: bool,
) -> _Four:  # fmt: skip
    return _run(q, k, v, starts_q, starts_k, longest_q, longest_k, dropout, scale, causal)


@_forward.register_fake
def _(*args: Any) -> _Four:
    return _run(*args)


def _run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts_q: torch.Tensor, starts_k: torch.Tensor,
    longest_q: int, longest_k: int, dropout: float, scale: float, causal: bool,
) -> _Four:  # fmt: skip
    found: _Four = _aten._flash_attention_forward(
        q, k, v, starts_q, starts_k, longest_q, longest_k, dropout, causal, False, scale=scale
    )[:4]
    return found


class _Varlen(Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *numbers: Any) -> torch.Tensor:
        out, sums, state, unused = _forward(q, k, v, starts_q, starts_k, *numbers)
        ctx.save_for_backward(q, k, v, out, sums, starts_q, starts_k, state, unused)
        ctx.numbers = numbers
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, sums, starts_q, starts_k, state, unused = ctx.saved_tensors
        longest_q, longest_k, dropout, scale, causal = ctx.numbers
        found = _aten._flash_attention_backward(
            gradient, q, k, v, out, sums, starts_q, starts_k, longest_q, longest_k, dropout, causal, state, unused,
            scale=scale,
        )  # fmt: skip
        return (*found, *(None,) * 7)
