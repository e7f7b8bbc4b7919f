"""The shape of a model's loss head, read from its output embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..compat.models import transformers_models
from .options import HeadShape

if TYPE_CHECKING:
    import torch


def head_shape(model: torch.nn.Module, tokens: int) -> HeadShape | None:
    """The head of ``model`` for a batch of so many tokens; None when it has no plain output embeddings."""
    for module in transformers_models(model):
        weight = getattr(module.get_output_embeddings(), "weight", None)
        if weight is not None and weight.dim() == 2:
            vocabulary, width = weight.shape
            return HeadShape(tokens, vocabulary, width, weight.element_size(), weight.requires_grad)
    return None
