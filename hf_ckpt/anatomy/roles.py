"""Tells what each sublayer of a decoder layer is for, by its structure, its attribute name and its class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from ..policy.decision import Role

if TYPE_CHECKING:
    from torch import nn

# The order decides: `Qwen3MoeAttention` is attention, a sparse MoE block is often called `mlp`, and
# `post_attention_layernorm` is a norm.
_NORM = re.compile(r"Norm")
#: With submodules of its own a norm is one by its last word: `RobertaPreLayerNormAttention` is none.
_COMPOSED_NORM = re.compile(r"Norm(?:Zero|Single|Continuous|Gated)?\d*[dX]?$")
_EXPERTS = re.compile(r"moe|experts|sparse", re.IGNORECASE)
_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_MLP = re.compile(
    r"mlp|feed_?forward|ffn|intermediate|densereludense|DenseActDense|DenseGatedActDense|^ff(_context)?$|^ff\d?_?net$",
    re.IGNORECASE,
)
#: Matrices on the layer itself that are no MLP: what attention projects with, and what chooses experts.
_PROJECTION = re.compile(
    r"^(?:(?:to_)?(?:q|k|v|o|g|qk|kv|qkv|query|key|value|out|in|gate|router)(?:_?proj(?:ection)?)?|query_key_value|c_attn|gate|router)$"
)
#: The members of a list are what the list is called: `self_attn.0`.
_PLACE_IN_LIST = re.compile(r"(?:\.\d+)+$")
_ACTIVATION = re.compile(r"^(?:act|activation|.*_act|.*act_fn)(?:_fn)?$")


def sublayers_by_role(layer: nn.Module) -> dict[Role, tuple[str, ...]]:
    """Role -> names relative to ``layer``, in program order of definition.

    Attention, MLP and experts are the outermost modules of their kind; norms are all norms, also those inside
    attention (``q_norm``). A layer without an MLP module whose own matrices widen and narrow again (``fc1``, ``fc2``)
    has these, and the activation between them, as its MLP. Other modules without weights (a dropout) have no role.
    """
    roles: dict[Role, list[str]] = {}
    claimed: list[str] = []
    for name, module in layer.named_modules():
        role = role_of(name, module) if name else None
        if role is None or (role is not Role.NORM and any(name.startswith(f"{c}.") for c in claimed)):
            continue
        if role is not Role.NORM:
            claimed.append(name)
        roles.setdefault(role, []).append(name)
    if Role.MLP not in roles and Role.EXPERTS not in roles:
        roles |= {Role.MLP: own} if (own := _own_mlp(layer)) else {}
    return {role: tuple(names) for role, names in roles.items()}


def role_of(name: str, module: nn.Module) -> Role | None:
    """What the module of this name is for; None for one that has no role."""
    if isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict):
        return None  # it has no forward: its members run
    attribute, class_name = _PLACE_IN_LIST.sub("", name).rpartition(".")[2], type(module).__name__
    norm = _COMPOSED_NORM if module._modules else _NORM
    if norm.search(class_name):
        return Role.NORM
    if not module._modules or not _has_weights(module):
        return None
    for role, pattern in ((Role.ATTENTION, _ATTENTION), (Role.EXPERTS, _EXPERTS), (Role.MLP, _MLP)):
        if pattern.search(class_name) or pattern.search(attribute):
            return Role.EXPERTS if role is Role.MLP and _holds_experts(module) else role
    return None


def _holds_experts(module: nn.Module) -> bool:
    """Whether it routes tokens, whatever it is called: `GptOssMLP`, `DbrxFFN`."""
    return any(name == "router" or _EXPERTS.search(name) for name, _ in module.named_children())


def _own_mlp(layer: nn.Module) -> list[str]:
    """The matrices of the layer itself that map to another width and back, and the activation modules beside them."""
    matrices = {
        name: shape
        for name, child in layer.named_children()
        if not _PROJECTION.match(name) and (shape := matrix_shape(child)) is not None
    }
    pairs = {
        name
        for name, (rows, columns) in matrices.items()
        if any(other != name and shape == (columns, rows) for other, shape in matrices.items())
    }
    if not pairs:
        return []
    return [name for name, child in layer.named_children() if name in pairs or _ACTIVATION.match(name)]


def matrix_shape(module: nn.Module) -> tuple[int, int] | None:
    """(rows, columns) of the weight of a linear module, also below an adapter; None for any other."""
    base: nn.Module = getattr(module, "base_layer", module)
    weight = getattr(base, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim != 2 or hasattr(base, "num_embeddings"):
        return None
    return weight.shape[0], weight.shape[1]


def _has_weights(module: nn.Module) -> bool:
    """FSDP1 with ``use_orig_params=False`` leaves plain tensors, views of its flat parameter, instead of parameters."""
    if next(module.parameters(), None) is not None:
        return True
    return any(isinstance(value, torch.Tensor) for child in module.modules() for value in vars(child).values())
