"""Rebuild: the saved tensor is dropped, and made again when backward first asks for one of the call.

A handle is ``[None]``, filled by the rebuild and emptied by autograd when it lets go of the handle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...assignment import REBUILD
from ..running.graph import graph_is_retained
from ..verb import PackingVerb

if TYPE_CHECKING:
    import torch

    from ..running.frame import Frame
    from ..verb import Pack, Place


class Rebuild(PackingVerb):
    """The ops behind the tensor run again, once for all dropped tensors of the call."""

    name = REBUILD
    handle = list
    stores = False

    def packer(self, place: Place) -> Pack:
        """Drop it, unless it is not what was traced."""
        shape = place.shape

        def drop(frame: Frame, tensor: torch.Tensor) -> Any:
            if tensor.shape != shape:
                raise RuntimeError(frame.differs(f"a saved tensor has shape {tuple(tensor.shape)}, not {shape}"))
            handle: list[torch.Tensor | None] = [None]
            frame.dropped.append(handle)
            return handle

        return drop

    @staticmethod
    def unpack(frame: Frame, handle: Any) -> torch.Tensor:
        """The tensor, rebuilt with all others of the call where it is not there yet."""
        tensor: torch.Tensor = handle[0]
        if tensor is None:
            fill(frame)
            tensor = handle[0]
        if frame.retained:
            handle[0] = None
        return tensor


def fill(frame: Frame) -> None:
    """Rebuild everything that was dropped. Raises RuntimeError when a backward that freed it came before."""
    if not frame.dropped:
        raise RuntimeError(
            f"{frame.prepared.layer}: a saved tensor was asked for after its backward freed it; "
            "pass retain_graph=True to go through the graph twice"
        )
    for handle, tensor in zip(frame.dropped, frame.rebuilt(), strict=True):
        handle[0] = tensor
    frame.prepared.replayed()
    frame.retained = graph_is_retained()
    if not frame.retained:
        frame.release()
