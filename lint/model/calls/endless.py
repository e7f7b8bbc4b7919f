"""Functions that checkpoint themselves, each time that they run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import words_in
from ...facts.nodes import all_nodes, is_inside, returned_by
from ...facts.objects.classes import is_run_as_written
from ...facts.values import Function, Instance, Method, options
from ..conditions.contexts import is_plain
from .block_arguments import is_derived_from, may_be_replaced
from .call_targets import call_targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import FunctionNode, Guard
    from ..events import Checkpoint
    from ..run import Run


def checkpoints_itself(run: Run, event: Checkpoint) -> bool:
    """Whether what ``event`` checkpoints certainly comes to ``event`` again.

    So does `checkpoint(self.forward, x)` in `forward`. A condition on the way is no way out when it asks for flags of
    the module that nothing on this way sets.
    """
    place, running = event.place, _running(run, event)
    again = next((function for function in _comes_to(run, event) if function.node in running), None)
    if again is None or place.tries or place.loops or not is_plain(place) or not is_run_as_written(again):
        return False
    if may_be_replaced(run, again.name) or is_derived_from(run, event):
        return False
    way = running[running.index(again.node) :]
    inner = (guard for guard in place.guards if any(is_inside(guard.test, node) for node in way))
    return not any(_may_be_way_out(run, event, guard, way) for guard in inner)


def _running(run: Run, event: Checkpoint) -> list[FunctionNode]:
    """The functions that are on their way when control comes to ``event``, outermost first."""
    places = [*(call.place for call in run.callers_of(event.place) or ()), event.place]
    return [place.function.node for place in places if place.function is not None]


def _comes_to(run: Run, event: Checkpoint) -> Iterator[Function]:
    """The method of the module itself that is checkpointed, or that a function calls which does nothing else."""
    function = event.function
    if len(options(function)) != 1:
        return
    called = [function]
    if isinstance(function, Function):
        returned = returned_by(function.node)
        calls = run.calls_at(returned[0]) if len(returned) == 1 else []
        called = [call.func for call in calls if call.place.function is function and not call.place.guards]
    for value in called:
        if isinstance(value, Instance | Method):
            yield from (target.function for target in call_targets(value))


def _may_be_way_out(run: Run, event: Checkpoint, guard: Guard, way: list[FunctionNode]) -> bool:
    """Whether ``guard`` may not hold again when the checkpointed function runs."""
    flags = _flags(guard.test, event)
    return flags is None or any(_may_set(run, node, flags) for node in way)


def _flags(test: ast.AST, event: Checkpoint) -> set[str] | None:
    """The attributes of the module that ``test`` is made of; None where it asks for something else."""
    match test:
        case ast.BoolOp(values=parts):
            found = [_flags(part, event) for part in parts]
            return None if None in found else {name for names in found if names for name in names}
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return _flags(part, event)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return {name}
        case ast.Attribute(value=ast.Name() as tensor, attr="requires_grad"):
            given = [part.id for part in event.node.args[1:] if isinstance(part, ast.Name)]
            return set() if tensor.id in given else None
        case ast.Call(func=ast.Attribute(attr="is_grad_enabled"), args=[]):
            # The reentrant variant runs the function without recording.
            return set() if event.reentrant is False else None
    return None


def _may_set(run: Run, node: FunctionNode, flags: set[str]) -> bool:
    """Whether ``node``, or a method or function that it names, may set one of ``flags``, or something by name."""
    named = words_in(node)
    if named & {"setattr", "__dict__", "eval", "train"}:
        return True
    bodies = [node, *(function for function in run.program.functions if getattr(function, "name", "") in named)]
    stored = (
        part.attr
        for body in bodies
        for part in all_nodes(body)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
    )
    return not flags.isdisjoint(stored)
