"""Batch norms that a class of the program computes itself: `F.batch_norm(x, self.mean, self.var, training=True)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from ...facts.objects.classes import ancestors
from ...facts.values import Absent, Attr, Const, Instance, Result, equals
from ..names import canonical
from ..state.held_state import registered_buffers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Class, Value
    from ..history import History
    from .region import Region

_FUNCTION = "torch.nn.functional.batch_norm"


def functional_norms(run: History, region: Region) -> Iterator[tuple[Call, Instance]]:
    """The calls in ``region`` that update statistics which modules of the program keep, and each of these modules."""
    for call in region.calls_to(_FUNCTION):
        owners = [_owner_of(run, call.argument(*it)) for it in ((1, "running_mean"), (2, "running_var"))]
        owner = owners[0]
        if owner is not None and owners[1] is not None and _updates(call, owner):
            yield from ((call, module) for module in region.modules if _is_of(module, owner.cls))


def _is_of(module: Value, cls: Class) -> TypeGuard[Instance]:
    return isinstance(module, Instance) and cls in (module.cls, *ancestors(module.cls))


def _owner_of(run: History, statistics: Value) -> Instance | None:
    """The module whose buffer it is; None where it may be none, or something else."""
    match statistics:
        case Attr(base=Instance(cls) as owner, name=name) if _holds(run, cls, name):
            return owner
    return None


def _holds(run: History, cls: Class, name: str) -> bool:
    """Whether objects of ``cls`` have a tensor as a buffer of this name, and it is never another one."""
    held = registered_buffers(run, cls).get(name)
    is_set = any(name in owner.fields for owner in (cls, *ancestors(cls)))
    return held is not None and not held.place.guards and _is_tensor(held.argument(1, "tensor")) and not is_set


def _is_tensor(value: Value) -> bool:
    """Whether torch made it: `torch.zeros(8)`."""
    return isinstance(value, Result) and canonical(value.call.name).startswith("torch.")


def _updates(call: Call, owner: Instance) -> bool:
    """Whether it runs on the statistics of the batch in train mode, and moves those that are kept."""
    training, momentum = call.argument(5, "training"), call.argument(6, "momentum")
    by_mode = isinstance(training, Attr) and training.name == "training" and training.base is owner
    moves = isinstance(momentum, Absent) or (isinstance(momentum, Const) and bool(momentum.value))
    return moves and (by_mode or equals(training, True) is True)
