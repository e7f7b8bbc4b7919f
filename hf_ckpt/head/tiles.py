"""Tiles of logits that a fused loss makes in backward, read from the graph of a forward's output.

TRL's fused head is such a loss, the default of its SFTTrainer. Liger's is none: it makes the gradients in the forward.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_iter

from ..planner.batches.beside_layers import nodes_behind
from .options import BYTES_PER_TILE_LOGIT, Tile

if TYPE_CHECKING:
    from torch.autograd.graph import Node


def tile_behind(output: Any) -> Tile | None:
    """The tile that the backward of ``output`` makes; None where no such loss is behind it."""
    device = next((value.device for value in tree_iter(output) if isinstance(value, torch.Tensor)), None)
    tiles = (_tile_of(node, device) for node in nodes_behind(output))
    return next((tile for tile in tiles if tile is not None), None)


def _tile_of(node: Node, device: torch.device | None) -> Tile | None:
    """That of one node, if it is ``ChunkedLogProbFunction`` (trl/kernels/chunked_logprob.py)."""
    function: Any = getattr(type(node), "_forward_cls", None)
    module = sys.modules.get(getattr(function, "__module__", ""))
    rows = getattr(module, "TOKEN_CHUNK_SIZE", None)
    columns, dtype = getattr(node, "chunk_size", None), getattr(node, "compute_dtype", None)
    if not (isinstance(rows, int) and isinstance(columns, int) and isinstance(dtype, torch.dtype)):
        return None
    in_kernels = getattr(module, "_use_triton", None)  # without Triton torch's ops make tensors of their own
    return Tile(rows, columns, dtype.itemsize, 0 if in_kernels and in_kernels(device) else BYTES_PER_TILE_LOGIT)
