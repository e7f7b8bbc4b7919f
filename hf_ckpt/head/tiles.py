"""Tiles of logits that a fused loss makes in backward, read from the graph of a forward's output.

TRL's fused head is such a loss, the default of its SFTTrainer. Liger's is none: it makes the gradients in the forward.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from ..planner.batches.beside_layers import nodes_behind, saved_by
from .options import BYTES_PER_TILE_LOGIT, Tile

if TYPE_CHECKING:
    from torch.autograd.graph import Node


def tile_behind(output: Any) -> Tile | None:
    """The tile that the backward of ``output`` makes; None where no such loss is behind it."""
    return next((tile for tile in map(_tile_of, nodes_behind(output)) if tile is not None), None)


def _tile_of(node: Node) -> Tile | None:
    """That of one node, if it is ``ChunkedLogProbFunction`` (trl/kernels/chunked_logprob.py)."""
    function: Any = getattr(type(node), "_forward_cls", None)
    rows = getattr(sys.modules.get(getattr(function, "__module__", "")), "TOKEN_CHUNK_SIZE", None)
    columns, dtype = getattr(node, "chunk_size", None), getattr(node, "compute_dtype", None)
    if not (isinstance(rows, int) and isinstance(columns, int) and isinstance(dtype, torch.dtype)):
        return None
    in_kernels = any(tensor.is_cuda for tensor in saved_by(node))  # Triton's: torch's ops make tensors of their own
    return Tile(rows, columns, dtype.itemsize, 0 if in_kernels else BYTES_PER_TILE_LOGIT)
