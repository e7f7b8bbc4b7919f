"""What a loss outside the model's forward saves: label smoothing, a ``compute_loss`` of one's own, a fused loss.

No hook on saved tensors may outlive the forward: it is global to the thread, and whoever opened another one around the
loss would close ours. What the graph of the loss holds is read when its backward begins instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..planner.batches.beside_layers import saved_without_hooks

if TYPE_CHECKING:
    from collections.abc import Callable


class LossWatch:
    """Tells ``count`` every tensor that no hook packed, of the graph of each loss whose backward begins.

    The forward's own saved tensors all went through the meter's hook, or through one inside it.
    """

    def __init__(self, count: Callable[[torch.Tensor], None]) -> None:
        self._count = count
        self._original: Callable[..., Any] | None = None

    def start(self) -> None:
        """Watch ``torch.autograd.backward``, which ``Tensor.backward`` calls (torch/_tensor.py)."""
        original = self._original = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            for tensor in saved_without_hooks(tensors):
                self._count(tensor)
            original(tensors, *args, **kwargs)

        torch.autograd.backward = backward

    def stop(self) -> None:
        """Let it be as it was."""
        if self._original is not None:
            torch.autograd.backward = self._original
            self._original = None
