"""Keep: the saved tensor stays, as without checkpointing. A handle is ``(tensor, version)``.

``Tensor._version`` counts in-place writes and is shared by all views of a storage (c10/core/TensorImpl.h,
``VariableVersion``). Autograd compares it itself for what it saves (torch/csrc/autograd/saved_variable.cpp), but not
for what a pack hook hands over: so a write between forward and backward is found here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...assignment import KEEP
from ..verb import PackingVerb

if TYPE_CHECKING:
    import torch

    from ..running.frame import Frame
    from ..verb import Pack, Place


class Keep(PackingVerb):
    """The tensor is there when backward asks for it."""

    name = KEEP
    handle = tuple

    def packer(self, place: Place) -> Pack:
        """Detach it, so that the graph does not own itself."""
        return keep_for_rebuild if place.is_source else keep

    @staticmethod
    def unpack(frame: Frame, handle: Any) -> torch.Tensor:
        """The tensor. Raises RuntimeError when it was written in place since."""
        tensor: torch.Tensor
        tensor, version = handle
        if tensor._version != version:
            raise RuntimeError(frame.modified("a saved tensor"))
        return tensor

    @staticmethod
    def held(handle: Any) -> torch.Tensor:
        """The tensor itself."""
        tensor: torch.Tensor = handle[0]
        return tensor


def keep(frame: Frame, tensor: torch.Tensor) -> Any:
    """The handle of a kept tensor."""
    return tensor.detach(), tensor._version


def keep_for_rebuild(frame: Frame, tensor: torch.Tensor) -> Any:
    """The same, for a rebuild to read."""
    kept = tensor.detach(), tensor._version
    frame.sources.append(kept)
    return kept
