"""The shape of a model's loss head, read from its output embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..chunks.chunked_forward import ChunkedForward
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
            itemsize, trained = weight.element_size(), weight.requires_grad
            return HeadShape(tokens, vocabulary, width, itemsize, trained, norm_chunks=_chunks_of_norm(module))
    return None


def _chunks_of_norm(model: torch.nn.Module) -> int:
    """In how many chunks the norm before the head runs."""
    forwards = (vars(module).get("forward") for module in model.modules())
    chunked = (forward for forward in forwards if isinstance(forward, ChunkedForward) and forward.outside)
    return next((forward.chunks for forward in chunked), 1)
