"""A checkpoint inside the region of another one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.values import Class, Instance, Result, options
from ..conditions.guards import own_guards, tests_training
from ..events import ApplyCheckpointing, Checkpoint, Checkpointing, CheckpointSequential, CheckpointWrap
from ..names import canonical
from .call_targets import call_targets
from .free_variables import names_bound_by
from .region import classes_checked

if TYPE_CHECKING:
    from ...facts.values import Call, Function, Value
    from ..run import Run

#: Modules that keep nothing for the backward pass, or nothing that costs.
_KEEPS_NOTHING = ("Identity", "Dropout", "Flatten", "Unflatten")


def inner_checkpoint(run: Run, outer: Checkpointing) -> ast.AST | None:
    """The checkpoint that certainly runs inside ``outer`` and makes its own region run a third time; None for none."""
    for value in _checkpointed(run, outer):
        for part in call_targets(value):
            found = _inside(run, part.function, outer)
            if found is not None:
                return found
    return None


def _checkpointed(run: Run, outer: Checkpointing) -> list[Value]:
    match outer:
        case Checkpoint() if _is_block_of_loop(outer):
            return [outer.function]
        case CheckpointWrap():
            return [outer.module]
        case ApplyCheckpointing():
            accepted = classes_checked(outer.check, run.bodies)
            return [cls.instance for cls in accepted if isinstance(cls, Class)]
    return []


def _is_block_of_loop(outer: Checkpoint) -> bool:
    """Whether each iteration of a loop checkpoints another block: one around a whole model is another matter."""
    first = outer.node.args[0] if outer.node.args else None
    read = {node.id for node in ast.walk(first) if isinstance(node, ast.Name)} if first is not None else set()
    return any(not read.isdisjoint(names_bound_by(loop)) for loop in outer.place.loops)


def _inside(run: Run, function: Function, outer: Checkpointing) -> ast.AST | None:
    """The inner checkpoint in the body of ``function``: always taken, once, with work after it that is kept."""
    calls = run.bodies.calls_in(function)
    events = {id(event.node): event for event in run.of(Checkpointing)}
    for call in calls:
        inner = events.get(id(call.node)) or _wrapped_here(run, call)
        if not isinstance(inner, Checkpoint | CheckpointSequential | CheckpointWrap) or inner is outer:
            continue
        if call.place.loops or not all(map(tests_training, own_guards(call.place))):
            continue
        variants = outer.reentrant, inner.reentrant
        if True in variants or (variants == (False, False) and any(_keeps(other, call, events) for other in calls)):
            return inner.node
    return None


def _wrapped_here(run: Run, call: Call) -> CheckpointWrap | None:
    """The wrapping of the module that ``call`` runs."""
    if not isinstance(call.func, Result):
        return None
    made = call.func.call.node
    return next((wrap for wrap in run.of(CheckpointWrap) if wrap.node is made), None)


def _keeps(later: Call, call: Call, events: dict[int, Checkpointing]) -> bool:
    """Whether ``later``, in the same body, surely runs after ``call`` and keeps tensors for the backward pass."""
    if later.order <= call.order or later.place.guards != call.place.guards or later.place.loops:
        return False
    return id(later.node) in events or all(_is_layer(option) for option in options(later.func))


def _is_layer(value: Value) -> bool:
    match value:
        case Result(made):
            name = canonical(made.name)
            return name.startswith("torch.nn.") and not name.endswith(_KEEPS_NOTHING)
        case Instance(_, made):
            return made is not None
    return False
