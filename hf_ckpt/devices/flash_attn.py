"""Plans for the package flash_attn where it is not installed: transformers' code around it, with torch's flash kernel.

Both save the queries, keys, values, the output, the sums of its rows and the random state
(flash_attn/flash_attn_interface.py, torch's derivatives.yaml). transformers builds no model with
``flash_attention_2`` unless the package is there, so the plan's model asks for an attention of our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from .cuda_ops import flash, narrowed

if TYPE_CHECKING:
    import torch

#: transformers asks whether a name has "flash" in it, and then looks for the package.
STAND_IN = "hf_ckpt_planned"


def planned_attention(asked: str | None) -> str | None:
    """The attention to build a plan's model with, where ``asked`` is what the training will use.

    A name that transformers does not know is given back as it is: transformers says which it knows.
    """
    if asked is None or not asked.startswith("flash_attention") or asked not in AttentionInterface().valid_keys():
        return asked
    AttentionInterface.register(STAND_IN, _attention)
    AttentionMaskInterface.register(STAND_IN, flash_attention_mask)
    return STAND_IN


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Heads before positions in, positions before heads out, as transformers calls every attention."""
    causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
    out = flash(narrowed(query), narrowed(key), narrowed(value), dropout, is_causal=causal, scale=scaling)
    return out.transpose(1, 2).contiguous(), None
