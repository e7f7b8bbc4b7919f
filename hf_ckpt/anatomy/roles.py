"""Tells what each sublayer of a decoder layer is for, by its attribute name and its class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from ..policy.decision import Role

if TYPE_CHECKING:
    from torch import nn

# The order decides: `Qwen3MoeAttention` is attention, a sparse MoE block is often called `mlp`, and
# `post_attention_layernorm` is a norm.
_NORM_CLASS = re.compile(r"(?:Layer|RMS|Group|Batch|Instance|T5Layer|Dyn\w*)Norm|Norm$")
_EXPERTS = re.compile(r"moe|experts|sparse", re.IGNORECASE)
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_MLP = re.compile(r"mlp|feed_?forward|ffn|intermediate|densereludense|DenseActDense|DenseGatedActDense", re.IGNORECASE)


def sublayers_by_role(layer: nn.Module) -> dict[Role, tuple[str, ...]]:
    """Role -> names relative to ``layer``, in program order of definition.

    Attention, MLP and experts are the outermost modules of their kind; norms are all norms, also those inside
    attention (``q_norm``). Modules without weights (a dropout, an activation) have no role.
    """
    roles: dict[Role, list[str]] = {}
    claimed: list[str] = []
    for name, module in layer.named_modules():
        role = _role(name, module) if name else None
        if role is None or (role is not Role.NORM and any(name.startswith(f"{c}.") for c in claimed)):
            continue
        if role is not Role.NORM:
            claimed.append(name)
        roles.setdefault(role, []).append(name)
    return {role: tuple(names) for role, names in roles.items()}


def _role(name: str, module: nn.Module) -> Role | None:
    attribute, class_name = name.rpartition(".")[2], type(module).__name__
    if _NORM_CLASS.search(class_name):
        return Role.NORM
    if not module._modules or not _has_weights(module):
        return None
    for role, pattern in ((Role.ATTENTION, _ATTENTION), (Role.EXPERTS, _EXPERTS), (Role.MLP, _MLP)):
        if pattern.search(class_name) or pattern.search(attribute):
            return role
    return None


def _has_weights(module: nn.Module) -> bool:
    """FSDP1 with ``use_orig_params=False`` leaves plain tensors, views of its flat parameter, instead of parameters."""
    if next(module.parameters(), None) is not None:
        return True
    return any(isinstance(value, torch.Tensor) for child in module.modules() for value in vars(child).values())
