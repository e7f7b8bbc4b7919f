"""Ranks that must plan alike: where a layer gathers its parameters, all ranks have to enter it in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import distributed as dist

from ..compat.wrappers import gathers_parameters, is_sharded

if TYPE_CHECKING:
    from collections.abc import Sequence


T = TypeVar("T")


def needs_agreement(model: torch.nn.Module) -> bool:
    """Whether some module gathers or splits parameters over ranks (FSDP, tensor parallelism); DDP does not."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return False
    return any(map(gathers_parameters, model.modules())) or any(map(is_sharded, model.parameters()))


def from_rank(value: T, *, mine: bool, device: torch.device) -> T:
    """The value of the first rank whose ``mine`` is true (at least one is), on all ranks."""
    world = dist.get_world_size()
    (first,) = largest([world - dist.get_rank() if mine else 0], device)
    values = [value]
    dist.broadcast_object_list(values, src=world - first, device=device)
    return values[0]


def largest(values: Sequence[int], device: torch.device) -> list[int]:
    """Each value's maximum over all ranks. One small all-reduce."""
    tensor = torch.tensor(values, dtype=torch.int64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return [int(value) for value in tensor.tolist()]
