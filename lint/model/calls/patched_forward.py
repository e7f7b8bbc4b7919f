"""Objects whose `forward` a program replaces by a checkpoint of itself: `partial(checkpoint, net.forward)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Attr, Function, Instance, Method, Partial, Ref, options
from ..events import CheckpointPartial, FunctionCheckpoint
from ..names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Place, Value
    from ..run import Run

_CHECKPOINT = "torch.utils.checkpoint.checkpoint"


class PatchedForward(NamedTuple):
    """A module that checkpoints its whole `forward` from some place of the program on."""

    module: Instance
    #: Where the program replaces it.
    place: Place
    #: The call of `checkpoint`, or the `partial` that stands for it.
    event: FunctionCheckpoint | CheckpointPartial


def patched_forwards(run: Run) -> Iterator[PatchedForward]:
    """The modules that get such a `forward`, each where it is written."""
    for write in run.writes:
        if write.field == "forward" and isinstance(write.obj, Instance) and not write.is_item:
            event = _checkpoint_in(run, write.value, write.obj)
            if event is not None:
                yield PatchedForward(write.obj, write.place, event)


def _checkpoint_in(run: Run, value: Value, module: Instance) -> FunctionCheckpoint | CheckpointPartial | None:
    """The checkpoint of the `forward` of ``module`` that ``value`` makes when it is called."""
    match value:
        case Partial(func=Ref(name), args=[Method() | Attr() as given], call=made) if canonical(name) == _CHECKPOINT:
            is_plain = _is_forward_of(given, module) and "context_fn" not in value.kwargs
            return CheckpointPartial(made) if is_plain else None
        case Function():
            inside = [
                event
                for event in run.of(FunctionCheckpoint)
                if event.place.function is not None and event.place.function.node is value.node
            ]
            if len(inside) == 1 and all(_is_forward_of(option, module) for option in options(inside[0].function)):
                return None if inside[0].call.written("context_fn") else inside[0]
    return None


def _is_forward_of(value: Value, module: Instance) -> bool:
    match value:
        case Method(receiver, function):
            return receiver.is_same(module) and function.name == "forward"
        case Attr(base=base, name="forward"):
            return base.is_same(module)
    return False
