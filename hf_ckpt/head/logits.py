"""What a loss takes for each logit, read from the graph of a forward's output.

Models differ between their output embeddings and their loss: some cap logits (Gemma saves a tanh of each), some compute
the loss in the dtype of the logits (T5, BART), some in float32, which autocast decides for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from ..planner.batches.beside_layers import nodes_behind, saved_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.autograd.graph import Node


@dataclass(frozen=True, slots=True)
class LogitBytes:
    """Bytes a logit: what the forward saves, and what is alive at the worst moment of the backward.

    ``weights`` are the bytes an element of output embeddings as the product reads them: autocast makes a copy. 0 where
    none is saved.
    """

    saved: int
    peak: int
    weights: int = 0


def logit_bytes(output: Any, rows: int, vocabulary: int) -> LogitBytes | None:
    """What the graph of ``output`` takes for logits of ``rows`` tokens; None where it saves none of them.

    A loss may be computed for fewer tokens: the last one of a sequence has no label.
    """

    def count(shape: Iterable[int]) -> int:
        *tokens, width = (1, *shape)
        number = torch.Size(tokens).numel()
        return number * width if width == vocabulary and rows < 2 * number else 0

    def bytes_of_gradients(node: Node | None) -> int:
        # What torch keeps of each result of a forward: its gradient is an input of the node.
        if node is None or node in of_weights:
            return 0
        return sum(count(each.shape) * each.dtype.itemsize for each in node._input_metadata)

    if not rows:
        return None
    # Autograd runs what was recorded last first (torch/csrc/autograd/engine.cpp).
    nodes = sorted(nodes_behind(output), key=lambda node: node._sequence_nr())
    of_weights = _made_of_one_weight(nodes)
    first_reader: dict[int, int] = {}
    saved = [0] * len(nodes)
    weights = 0
    for place, node in enumerate(nodes):
        for tensor in saved_by(node):
            weights = max(weights, _itemsize_of_weights(tensor, vocabulary))
            storage = tensor.untyped_storage()
            if count(tensor.shape) and tensor.is_contiguous() and storage._cdata not in first_reader:
                first_reader[storage._cdata] = place
                saved[place] += storage.nbytes()
    if not first_reader:
        return None
    alive = (
        still_saved + bytes_of_gradients(node) + sum(bytes_of_gradients(before) for before, _ in node.next_functions)
        for node, still_saved in zip(nodes, accumulate(saved), strict=True)
    )
    in_forward, in_backward = (round(nbytes / (rows * vocabulary)) for nbytes in (sum(saved), max(alive)))
    return LogitBytes(in_forward, in_backward, weights)


def _itemsize_of_weights(tensor: torch.Tensor, vocabulary: int) -> int:
    """Bytes an element of output embeddings that a product saved, transposed; 0 for any other tensor."""
    is_transposed = tensor.dim() == 2 and tensor.shape[1] == vocabulary and not tensor.is_contiguous()
    return tensor.element_size() if is_transposed else 0


def _made_of_one_weight(nodes: Sequence[Node]) -> set[Node]:
    """Those of ``nodes``, in the order they were recorded, that transpose or cast a parameter and read nothing else.

    The transposed weight of output embeddings, (width, vocabulary), has the shape of logits of as many tokens.
    """
    found: set[Node] = set()
    for node in nodes:
        match node.next_functions:
            case ((before, _),) if before in found or isinstance(getattr(before, "variable", None), torch.nn.Parameter):
                found.add(node)
    return found
