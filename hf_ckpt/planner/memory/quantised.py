"""Weights that bitsandbytes packs to 4 bit: which, and what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ...compat.models import output_head

if TYPE_CHECKING:
    import torch

#: One float32 scale for so many weights (bitsandbytes' blocksize; without double quantisation, as is the default).
_BLOCK = 64


def quantised_weights(model: torch.nn.Module) -> dict[int, torch.Tensor]:
    """The frozen weights of linear layers, by id; transformers leaves the output embeddings as they are."""
    found = output_head(model)
    head = {id(p) for p in found[1].parameters()} if found is not None else set()
    weights = (module.weight for module in model.modules() if isinstance(module, nn.Linear))
    return {id(weight): weight for weight in weights if not weight.requires_grad and id(weight) not in head}


def packed_bytes(elements: int) -> int:
    """Bytes of so many weights in 4 bit with their scales."""
    return elements // 2 + 4 * (elements // _BLOCK)
