"""Ranks that must plan alike: where a layer gathers its parameters, all ranks have to enter it in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import distributed as dist

from ..compat.wrappers import gathers_parameters, is_sharded
from ..errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


T = TypeVar("T")

#: The default group of ranks -> the group beside it.
_BESIDE: WeakKeyDictionary[Any, dist.ProcessGroup] = WeakKeyDictionary()


def needs_agreement(model: torch.nn.Module) -> bool:
    """Whether some module gathers or splits parameters over ranks (FSDP, tensor parallelism, ZeRO-3); DDP does not."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return False
    return any(map(gathers_parameters, model.modules())) or any(map(is_sharded, model.parameters()))


def _beside_the_device(device: torch.device) -> tuple[torch.device, dist.ProcessGroup | None]:
    """Where a few numbers are exchanged without waiting for the device, and the group; None: the default group.

    A collective of NCCL ends on the device, so that reading its result waits for all that is queued there: the step
    would begin with an idle device. Collective.
    """
    if device.type == "cpu" or "cpu:" in dist.get_backend_config():
        return torch.device("cpu"), None
    if not dist.is_gloo_available():
        return device, None
    world = dist.group.WORLD
    if world not in _BESIDE:  # a group connects every rank with every other: one lasts for all trainings
        _BESIDE[world] = dist.new_group(backend="gloo")
    return torch.device("cpu"), _BESIDE[world]


class Ranks:
    """The ranks that plan together; a single one where ``together`` is False.

    Every method is a collective: where one rank calls it, all must. So nothing may return or raise in between on some
    of them only; what can fail on one goes through :meth:`decide`.
    """

    def __init__(self, device: torch.device, *, together: bool) -> None:
        self.together = together
        self._place, self._group = _beside_the_device(device) if together else (device, None)

    def largest(self, values: Sequence[int]) -> list[int]:
        """Each value's maximum over all ranks. One small all-reduce."""
        if not self.together:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.int64, device=self._place)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group)
        return [int(value) for value in tensor.tolist()]

    def any(self, value: bool) -> bool:
        """Whether it is true on some rank."""
        return bool(self.largest([int(value)])[0])

    def decide(self, make: Callable[[], T | None], *, prefer: bool = True) -> T | None:
        """What ``make`` returns on the first rank that prefers to be asked, else on the first where it is not None.

        An error on one rank is an error on all: a BudgetError with the same words.
        """
        if not self.together:
            return make()
        value, error = None, None
        try:
            value = make()
        except Exception as caught:  # a rank that raised while the others wait would hang them
            error = caught
        failed = self._first(1 if error is not None else 0)
        if failed is not None:
            words = self._broadcast(str(error), failed)
            raise error if isinstance(error, BudgetError) else BudgetError(words) from error
        chosen = self._first(0 if value is None else 2 if prefer else 1)
        return None if chosen is None else self._broadcast(value, chosen)

    def _first(self, score: int) -> int | None:
        """The first rank of the highest score; None when all are 0."""
        world = dist.get_world_size()
        (best,) = self.largest([score * (world + 1) + world - dist.get_rank() if score else 0])
        return None if not best else world - best % (world + 1)

    def _broadcast(self, value: Any, source: int) -> Any:
        values = [value]
        dist.broadcast_object_list(values, src=source, device=self._place, group=self._group)
        return values[0]
