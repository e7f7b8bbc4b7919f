"""Whether the same module is checkpointed more than once in a forward pass."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.values import Element, Function, Method, Partial, options
from ..events import Checkpoint
from ..flow.iterations import changes_by_iteration

if TYPE_CHECKING:
    from ..run import Run


def _chooses_by_argument(event: Checkpoint) -> bool:
    """Whether a function gets what a loop goes through, by which it may choose another module each time."""
    functions = any(isinstance(option, Function | Method | Partial) for option in options(event.function))
    targets = [loop.target for loop in event.place.loops if not isinstance(loop, ast.While)]
    gone_through = frozenset[str]().union(*map(names_in, targets))
    return functions and any(not names_in(given).isdisjoint(gone_through) for given in event.node.args[1:])


def is_reused(run: Run, event: Checkpoint) -> bool:
    """Whether several reentrant segments certainly run the module that ``event`` checkpoints."""
    first = event.node.args[0] if event.node.args else None
    if first is None or isinstance(event.function, Element):
        return False
    if event.place.loops:
        return not changes_by_iteration(first, event.place) and not _chooses_by_argument(event)
    others = [other for other in run.of(Checkpoint) if other.place.function is event.place.function]
    return any(
        other.node is not event.node and other.reentrant and ast.dump(other.node.args[0]) == ast.dump(first)
        for other in others
        if other.node.args
    )
