"""What the autograd engine says of the backward that is running."""

from __future__ import annotations

import torch


def is_in_backward() -> bool:
    """Whether this thread runs a backward now, so that a forward inside it is a replay.

    torch/csrc/autograd/engine.cpp: the id is that of the graph task of this thread, -1 outside any backward.
    """
    return torch._C._current_graph_task_id() != -1


def graph_is_retained() -> bool:
    """Whether saved tensors may be asked for again: a retained graph, or a look from outside a backward.

    torch/csrc/autograd/engine.cpp: a task keeps the graph with ``retain_graph=True``, and where
    ``torch.autograd.grad`` makes a graph of the gradients.
    """
    return not is_in_backward() or torch._C._autograd._get_current_graph_task_keep_graph()
