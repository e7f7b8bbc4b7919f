"""Modules of the program that make a checkpoint: around another module, `Recomputed(Block())`, or inside of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.identifiers import is_own_attribute
from ...facts.objects.classes import ancestors
from ...facts.objects.containers import container_kind, held_by
from ...facts.values import Class, Function, Instance, Result, Value, options
from ..calls.handed_on import handed_on
from ..conditions.guards import tests_training
from ..tensors.gradient_free import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Place
    from ..events import CheckpointWrap, FunctionCheckpoint, TorchCheckpoint
    from ..history import History
    from .region import Region

#: Methods that make what a module holds: those by which Lightning lets a module do so later, too.
_CONSTRUCTORS = ("__init__", "configure_model", "configure_sharded_model")


def is_around_each_block(run: History, checkpoint: FunctionCheckpoint) -> bool:
    """Whether a method checkpoints what its object holds, and constructors make such objects in loops, one a block."""
    function, given = checkpoint.place.function, checkpoint.node.args[:1]
    if function is None or function.owner is None or not any(map(is_own_attribute, given)):
        return False
    made = [call for call in run.program.calls if call.func is function.owner]
    return bool(made) and all(call.place.loops and _is_in_constructor(call.place) for call in made)


def _is_in_constructor(place: Place) -> bool:
    entered = () if place.function is None else (place.function.node,)
    return any(getattr(function, "name", "") in _CONSTRUCTORS for function in (*place.callees, *entered))


def runs_in_several_blocks(checkpoint: TorchCheckpoint, model: Value, region: Region) -> bool:
    """Whether the method that checkpoints runs in several objects of its class, or several times in one.

    Args:
        checkpoint: The checkpoint.
        model: The model that is asked for.
        region: What a training step of the model runs.
    """
    function = checkpoint.place.function
    owner = None if function is None else function.owner
    return owner is not None and runs_several_of(owner, model, region)


def runs_several_of(owner: Class, model: Value, region: Region) -> bool:
    """The same for any class: whether several objects of ``owner`` run in ``region``, or one several times."""
    called = [*_always_called(region), (model, False)]
    blocks = [is_repeated for module, is_repeated in called for is_repeated in _blocks(module, owner, is_repeated)]
    return len(blocks) > 1 or True in blocks


def _always_called(region: Region) -> Iterator[tuple[Value, bool]]:
    """What a training step of ``region`` calls under no condition, and whether it does so in a loop."""
    for call in region.calls:
        if not is_gradient_free(call) and all(map(tests_training, region.conditions_of(call))):
            yield call.func, bool(call.place.loops)


def runs_several_wrapped_by(wrap: CheckpointWrap, model: Value, region: Region) -> bool:
    """Whether several modules that ``wrap`` made run in ``region``, or one of them several times."""
    called = [*_always_called(region), (model, False)]
    made = [is_repeated for module, is_repeated in called for is_repeated in _made_by(module, wrap, is_repeated)]
    return len(made) > 1 or True in made


def _made_by(module: Value, wrap: CheckpointWrap, is_repeated: bool) -> Iterator[bool]:
    """For each module of ``wrap`` that a call of ``module`` runs, whether it stands for several."""
    match options(module):
        case (Result(call),) if call is wrap.call:
            yield is_repeated or bool(wrap.place.loops)
        case (held,) if container_kind(held) == "Sequential":
            for part in held_by(held):
                yield from _made_by(part, wrap, is_repeated)


def _blocks(module: Value, owner: Class, is_repeated: bool) -> Iterator[bool]:
    """For each object of the class ``owner`` that a call of ``module`` runs, whether it stands for several."""
    match options(module):
        case (Instance(cls, made),) if not container_kind(module):
            runs_own = not isinstance(cls.body.get("forward"), Function)
            if cls is owner or (runs_own and owner in ancestors(cls)):
                yield is_repeated or (made is not None and bool(made.place.loops))
        case (held,) if container_kind(held) == "Sequential":
            for part in held_by(held):
                yield from _blocks(part, owner, is_repeated)


def inputs_of(run: History, checkpoint: FunctionCheckpoint) -> list[Value]:
    """The positional inputs of a checkpoint; where its module hands its `*args` on, what one of its callers gives.

    Nothing where the callers give different numbers of them.
    """
    handed = handed_on(run.forwards, checkpoint.call) if checkpoint.call.open_args and not checkpoint.inputs else None
    if not handed:
        return checkpoint.inputs
    by_call = {id(call): [value for other, value in handed if other is call] for call, _ in handed}
    first, *others = by_call.values()
    return first if all(len(other) == len(first) for other in others) else []
