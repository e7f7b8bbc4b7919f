"""What comes out of a checkpointed region: the calls that run one, and what is computed from their results."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Function, Instance, Method, Result, options, same
from ..events import ApplyCheckpointing, Checkpointing, HfEnable
from ..flow.ordering import surely_before
from ..libraries.sharding import root
from ..libraries.trainer import enable_reentrant
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call
    from ..run import Run


class Forward(NamedTuple):
    """A call that runs a checkpointed region, and what checkpoints it."""

    call: Call
    cause: Checkpointing | HfEnable


def forwards(run: Run, calls: Iterable[Call], *, reentrant: bool) -> Iterator[Forward]:
    """Those of ``calls`` that certainly run a region of this variant: a checkpoint, or what contains one."""
    events = {event.node: event for event in run.replayed(Checkpointing) if event.reentrant is reentrant}
    enables = [enable for enable in run.of(HfEnable) if enable_reentrant(run, enable) is reentrant]
    for call in calls:
        if call.node in events:
            yield Forward(call, events[call.node])
            continue
        cause = _inside(run, call, events) or _applied(run, call, events) or _enabled(call, enables)
        if cause is not None:
            yield Forward(call, cause)


def _inside(run: Run, call: Call, events: dict[ast.Call, Checkpointing]) -> Checkpointing | None:
    if not events or not all(isinstance(option, Instance | Function | Method) for option in options(call.func)):
        return None
    inside = run.bodies.of(call.func).calls
    return next((events[found.node] for found in inside if found.node in events), None)


def _applied(run: Run, call: Call, events: dict[ast.Call, Checkpointing]) -> Checkpointing | None:
    """What wrapped blocks of the model that is called, and found some."""
    for event in events.values():
        if not isinstance(event, ApplyCheckpointing) or not same(unwrapped(event.model), unwrapped(call.func)):
            continue
        if surely_before(event.call, call) and run.region(event).functions:
            return event
    return None


def _enabled(call: Call, enables: list[HfEnable]) -> HfEnable | None:
    if not isinstance(call.func, Result):
        return None
    for enable in enables:
        if root(enable.model) is root(call.func) and not enable.place.excludes(call.place):
            return enable
    return None


class Derived:
    """What the names of one function hold of the results of ``calls`` when ``place`` is reached, line by line."""

    __slots__ = ("_names", "_sources")

    def __init__(self, run: Run, function: Function | None, calls: list[Call], place: ast.expr) -> None:
        self._sources = {call.node for call in calls}
        self._names: set[str] = set()
        body = run.program.tree if function is None else function.node
        assignments = [node for node in ast.walk(body) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)]
        for assignment in sorted(assignments, key=lambda node: node.lineno):
            if assignment.lineno < place.lineno and assignment.value is not None:
                self._assign(assignment, assignment.value)

    def _assign(self, assignment: ast.Assign | ast.AnnAssign | ast.AugAssign, value: ast.expr) -> None:
        targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
        names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        if self.holds(value):
            self._names |= names
        elif not isinstance(assignment, ast.AugAssign):
            self._names -= names

    def holds(self, expression: ast.AST) -> bool:
        """Whether ``expression`` is computed from one of the results, with its gradient."""
        nodes = list(ast.walk(expression))
        if any(isinstance(node, ast.Attribute) and node.attr in ("detach", "item", "no_grad") for node in nodes):
            return False
        return any(node in self._sources or (isinstance(node, ast.Name) and node.id in self._names) for node in nodes)
