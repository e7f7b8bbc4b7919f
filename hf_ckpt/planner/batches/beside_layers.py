"""What a forward saves beside its layers: embeddings, norms, poolers, towers that are not planned.

Layers save through hooks, so whatever the graph of an output holds without one was saved by the rest of the model. The
loss head is left out: the planner has its own bytes for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_iter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.autograd.graph import Node

    from .per_batch import BatchSize


@dataclass
class BesideLayers:
    """The bytes that the latest measured forward saved beside its layers; other batches save them by their size."""

    load: int = 1
    nbytes: int = 0

    def note(self, size: BatchSize, nbytes: int) -> None:
        """A forward of a batch of this size saved so many bytes."""
        self.load, self.nbytes = max(1, size.load), nbytes

    def of(self, size: BatchSize) -> int:
        """Bytes of a batch of this size."""
        return ceil(self.nbytes * size.load / self.load)


def saved_beside_layers(model: torch.nn.Module, output: Any, vocabulary: int | None) -> int:
    """Bytes that the graph of ``output`` holds, less those of layers that save through hooks.

    Parameters and buffers are there anyway; tensors with a dimension of size ``vocabulary`` are the loss head's.
    """
    there = {_key(tensor) for tensors in (model.parameters(), model.buffers()) for tensor in tensors if _counts(tensor)}
    saved = {
        _key(tensor): tensor.untyped_storage().nbytes()
        for tensor in saved_without_hooks(output)
        if _counts(tensor) and vocabulary not in tensor.shape
    }
    return sum(nbytes for key, nbytes in saved.items() if key not in there)


def saved_without_hooks(output: Any) -> Iterator[torch.Tensor]:
    """What the graph of ``output`` saves and no hook packed."""
    for node in nodes_behind(output):
        yield from saved_by(node)


def nodes_behind(output: Any) -> Iterator[Node]:
    """The nodes of the graph of ``output``, the last ones first."""
    waiting = [v.grad_fn for v in tree_iter(output) if isinstance(v, torch.Tensor) and v.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        new = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= new
        waiting += new


def saved_by(node: Node) -> Iterator[torch.Tensor]:
    """What a node saves and no hook packed."""
    # torch/csrc/autograd/python_saved_variable_hooks.cpp: the raw saved tensor can be read without calling its hook.
    for saved in tree_iter([getattr(node, name) for name in _raw_names(type(node))]):
        if saved is not None and saved.unpack_hook is None and isinstance(saved.data, torch.Tensor):
            yield saved.data


# Listing the attributes of a node takes longer than reading them, and a graph has thousands of a few types.
@lru_cache(maxsize=256)
def _raw_names(kind: type[Node]) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _counts(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _key(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key
