"""Names that a checkpointed function reads when it runs, and that its loop changes before it runs again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import own_attributes
from ...facts.nodes import all_nodes
from ...facts.objects.containers import length_of
from ..events import AutogradGrad, Backward, Checkpoint, GradientSwitch
from ..flow.turns import happens_in_turn, is_last_turn
from ..state.gradless import is_gradless
from .free_variables import free_names, names_bound_by

if TYPE_CHECKING:
    from ...facts.places import Loop
    from ...facts.values import Function
    from ..run import Run

_BINDS = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.With


def changed_names(run: Run, event: Checkpoint, function: Function) -> tuple[str, ...]:
    """The names ``function`` reads that a loop around both it and the checkpoint binds before the backward pass.

    Args:
        run: The run that ``event`` is of.
        event: The checkpoint.
        function: What it checkpoints, made in the same function of the file.

    Returns:
        Variables (`layer`) and attributes of the object itself (`self.layer`), sorted; empty when the recomputation
        reads what the forward pass read.
    """
    if function.place.function is not event.place.function:
        return ()
    read = free_names(function.node) | own_attributes(function.node, ast.Load)
    found: set[str] = set()
    for loop in function.place.loops:
        bound = names_bound_by(loop) | own_attributes(loop, ast.Store) if loop in event.place.loops else frozenset()
        if read & bound and not _keeps_names(run, event, loop):
            found |= read & bound
    return tuple(sorted(found))


def _keeps_names(run: Run, event: Checkpoint, loop: Loop) -> bool:
    """Whether the names of ``loop`` are the same in the backward pass, or no region needs them there."""
    ends = any(happens_in_turn(run, backward, loop) for backward in run.of(Backward, AutogradGrad))
    return ends or is_last_turn(loop, event.node) or _replays_last_turn_only(run, event, loop)


def _replays_last_turn_only(run: Run, event: Checkpoint, loop: Loop) -> bool:
    """Whether nothing trains in front of the last block, so that only its region runs again, with the right name."""
    blocks, frozen = _count(event, loop), max((switch.leading for switch in run.of(GradientSwitch)), default=0)
    last = blocks is not None and 0 < blocks - 1 <= frozen
    return last and all(is_gradless(run, value) for value in event.inputs)


def _count(event: Checkpoint, loop: Loop) -> int | None:
    """How many blocks the attribute `self.blocks` holds that ``loop`` goes through."""
    function = event.place.function
    owner = function.owner if function is not None else None
    iterated = None if isinstance(loop, ast.While) else loop.iter
    names = [part.attr for part in all_nodes(iterated) if isinstance(part, ast.Attribute)] if iterated else []
    if owner is None or len(names) != 1 or names[0] not in owner.fields:
        return None
    return length_of(owner.fields[names[0]])


def may_be_rebound(event: Checkpoint, function: Function, names: tuple[str, ...]) -> bool:
    """Whether a statement between the one that makes ``function`` and ``event`` binds one of ``names``."""
    loops = [loop for loop in event.place.loops if isinstance(loop, ast.stmt)]
    return any(_binds_between(statement, function, event, names) for loop in loops for statement in all_nodes(loop))


def _binds_between(statement: ast.AST, function: Function, event: Checkpoint, names: tuple[str, ...]) -> bool:
    if not isinstance(statement, _BINDS):
        return False
    node = function.node
    made = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    if not made <= (statement.lineno, statement.col_offset) < (event.node.lineno, event.node.col_offset):
        return False
    if any(part is event.node for part in all_nodes(statement)):
        return False
    return any(isinstance(part, ast.Name) and _is_store(part) and part.id in names for part in all_nodes(statement))


def _is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def is_only_checkpointed(run: Run, function: Function, event: Checkpoint) -> bool:
    """Whether ``function`` is a lambda, or its name is read for nothing but being checkpointed."""
    if isinstance(function.node, ast.Lambda):
        return True
    around = event.place.function
    body = run.program.tree if around is None else around.node
    checkpointed = {id(other.node.args[0]) for other in run.of(Checkpoint) if other.node.args}
    return all(
        id(read) in checkpointed
        for read in all_nodes(body)
        if isinstance(read, ast.Name) and read.id == function.name and isinstance(read.ctx, ast.Load)
    )
