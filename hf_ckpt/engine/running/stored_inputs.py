"""The layer's own input where a verb stores it: what is stored, and what stays because there is no room."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from ...errors import BudgetError

if TYPE_CHECKING:
    from ..verb import Pack

_log = logging.getLogger(__name__)
#: The classes of layers whose inputs were said to stay.
_said: set[str] = set()


def is_whole(tensor: Any) -> bool:
    """Whether a plain tensor has its storage to itself. Of a part somebody else has the rest, and all would travel."""
    return type(tensor) is torch.Tensor and tensor.untyped_storage().nbytes() == tensor.nbytes


def if_whole(pack: Pack, otherwise: Pack, nbytes: int) -> Pack:
    """``pack`` for what autograd saves of an input of ``nbytes`` that has its storage to itself, else ``otherwise``."""

    def pack_or_keep(frame: Any, tensor: torch.Tensor) -> Any:
        alone = type(tensor) is torch.Tensor and tensor.untyped_storage().nbytes() == nbytes
        return (pack if alone else otherwise)(frame, tensor)

    return pack_or_keep


def unless_full(pack: Pack, otherwise: Pack) -> Pack:
    """``pack``, and ``otherwise`` where there is no room for the tensor, which a planner's first step cannot know."""

    def pack_or_keep(frame: Any, tensor: torch.Tensor) -> Any:
        try:
            return pack(frame, tensor)
        except BudgetError as error:
            _warn_once(frame.prepared.recipe.trace.class_name, str(error))
            return otherwise(frame, tensor)

    return pack_or_keep


def stay(frame: Any, tensor: torch.Tensor) -> torch.Tensor:
    """The input itself, for a rebuild to read."""
    return tensor


def _warn_once(class_name: str, reason: str) -> None:
    if class_name not in _said:
        _said.add(class_name)
        _log.warning("%s: the layer's input stays on the device, because %s", class_name, reason)
