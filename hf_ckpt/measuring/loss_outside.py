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
        self.count = count

    def start(self) -> None:
        """Watch ``torch.autograd.backward``, which ``Tensor.backward`` calls (torch/_tensor.py)."""
        if not _watches:
            _originals.append(torch.autograd.backward)
            torch.autograd.backward = _watched(_originals[0])
        _watches.append(self)

    def stop(self) -> None:
        """Watch it no longer; the last watch that stops leaves it as it was."""
        if self in _watches:
            _watches.remove(self)
            if not _watches:
                torch.autograd.backward = _originals.pop()


#: Those that watch now, of all models that are measured, which may stop in any order; and what stood there before.
_watches: list[LossWatch] = []
_originals: list[Callable[..., None]] = []


def _watched(original: Callable[..., None]) -> Callable[..., None]:
    """What stands as ``torch.autograd.backward``; who took it for good still calls the original."""

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        for tensor in saved_without_hooks(tensors) if _watches else ():
            for watch in _watches:
                watch.count(tensor)
        original(tensors, *args, **kwargs)

    return backward
