"""What a function changes in place of the inputs of a checkpoint behind it, while the step goes on."""

from __future__ import annotations

import ast
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes, is_inside, start
from ...facts.straight import straight
from ...facts.values import Result, options
from ..calls.call_targets import call_targets
from ..tensors.tensor_uses import tensors_given
from ..tensors.tensor_values import is_tensor
from ..types import bases
from .in_place import (
    changes_in,
    changes_in_helpers,
    changes_of_call,
    rebound,
    stores_in,
    used_as_tensors,
    views_bound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Function, Value
    from ..events import Checkpoint
    from ..run import Run
    from .in_place import Change

#: Statements behind which a block does not go on.
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class _Caller(NamedTuple):
    """What all checkpoints of one function ask for."""

    #: What each of its calls calls, by the id of its node.
    calls: dict[int, Value]
    #: The names that it uses as only tensors can be used.
    tensors: frozenset[str]
    #: The names that any statement of it may change in place, or bind another name to.
    changed: frozenset[str]


class LaterChanges:
    """The changes in place, by the functions of a run that make checkpoints, of what they have given to one by name.

    Those behind a backward pass, and of names that are bound to something else by then, are none. What other calls do
    is open outside of a module's forward, so there the statement with the checkpoint alone is judged.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._callers: dict[Function, _Caller] = {}

    def after(self, event: Checkpoint) -> Iterator[Change]:
        """The changes behind ``event``."""
        function = event.place.function
        if function is None:
            return
        given = {part.id for part in (*event.node.args[1:], *_function_keywords(event)) if isinstance(part, ast.Name)}
        caller = self._caller(function)
        if given.isdisjoint(caller.changed):
            return
        following = _from(function.node.body, event.node)
        tensors = caller.tensors | self._tensors_of(event)
        for statement, names in _reached(following, event, given, function) if following else ():
            known = tensors | {alias for alias, name in names.items() if name in tensors}
            helpers = changes_in_helpers(self._run, statement, caller.calls, known)
            for change in (*changes_in(statement, caller.calls, known), *helpers):
                # In the call's own statement, what gets its result comes after it.
                is_after = statement is not following[0] or change.node is statement
                if change.name in names and (is_after or is_inside(event.node, change.node)):
                    yield change._replace(name=names[change.name])

    def _tensors_of(self, event: Checkpoint) -> set[str]:
        """The names of inputs that only a tensor can be: what torch gave, or what the region uses as one."""
        given = zip(event.node.args[1:], event.inputs, strict=False)
        named = [(part.id, value) for part, value in given if isinstance(part, ast.Name)]
        words = [(word.value, word.arg) for word in event.node.keywords if word.arg in event.function_kwargs]
        named += [(part.id, event.function_kwargs[name]) for part, name in words if isinstance(part, ast.Name) and name]
        found = {name for name, value in named if _gives_tensor(value) or is_tensor(value)}
        kinds, bodies = options(event.function), list(call_targets(event.function))
        if all(isinstance(kind, Result) and kind.call.name.startswith("torch.nn.") for kind in kinds):
            found |= {part.id for part in event.node.args[1:2] if isinstance(part, ast.Name)}
        if len(bodies) == len(kinds):
            found |= tensors_given(self._run, bodies, event.node.args[1:])
        return found

    def _caller(self, function: Function) -> _Caller:
        if function not in self._callers:
            calls = {id(call.node): call.func for call in self._run.bodies.calls_in(function)}
            nodes = list(all_nodes(function.node))
            self._callers[function] = _Caller(
                calls,
                frozenset(name for node in nodes for name in used_as_tensors(node, {})),
                frozenset(name for node in nodes for name in _possibly_changed(node, calls)),
            )
        return self._callers[function]


def _possibly_changed(node: ast.AST, calls: dict[int, Value]) -> Iterator[str]:
    yield from (change.name for change in stores_in(node))
    yield from (name for _, name in views_bound(node))
    if isinstance(node, ast.Call):
        called = calls.get(id(node))
        yield from (change.name for change in changes_of_call(node, called))
        if called is not None and any(call_targets(called)):
            yield from (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _reached(
    following: list[ast.stmt], event: Checkpoint, given: set[str], function: Function
) -> Iterator[tuple[ast.AST, dict[str, str]]]:
    """The statements before the step ends, each with the names that still are, or share, what the checkpoint got.

    By a name there is the one that the checkpoint got.
    """
    first, *behind = following
    names = {name: name for name in given}
    if getattr(first, "value", None) is not event.node or isinstance(first, ast.AugAssign):
        yield first, names
    names = _left(names, first)
    if _ends_the_step(first) or not _is_module_forward(function):
        return
    for statement in straight(behind, ast.With):
        if not names or _ends_the_step(statement):
            return
        if not isinstance(statement, ast.For):  # it may have nothing to go through
            yield statement, names
        names = _left(names, statement)


def _left(names: dict[str, str], statement: ast.AST) -> dict[str, str]:
    """``names`` behind ``statement``: without those that it binds anew, with those that it binds to the same tensor."""
    shared = {alias: names[name] for alias, name in views_bound(statement) if name in names}
    bound = rebound(statement)
    return {alias: name for alias, name in names.items() if alias not in bound} | shared


def _from(body: ast.expr | list[ast.stmt], call: ast.Call) -> list[ast.stmt]:
    """The statement that makes ``call``, and those that run behind it, in the blocks around it too."""
    block = body if isinstance(body, list) else []
    index = bisect_right(block, start(call), key=start) - 1
    if index < 0 or not is_inside(call, block[index]):
        return []
    below = [getattr(block[index], field, []) for field in ("body", "orelse", "finalbody")]
    inside = [found for part in below for found in _from(part, call)] or [block[index]]
    return inside if any(map(_leaves, inside)) else inside + block[index + 1 :]


def _leaves(statement: ast.stmt) -> bool:
    """Whether a way through the statement leaves the block, so that what stands behind it may not run."""
    return any(isinstance(node, _LEAVING) for node in ast.walk(statement))


def _is_module_forward(function: Function) -> bool:
    """Whether it is the `forward` of a module, which runs no backward pass that it does not name."""
    owner = function.owner
    return (
        function.name == "forward" and owner is not None and any(base.startswith("torch.nn.") for base in bases(owner))
    )


def _function_keywords(event: Checkpoint) -> Iterator[ast.expr]:
    return (word.value for word in event.node.keywords if word.arg in event.function_kwargs)


def _gives_tensor(value: Value) -> bool:
    made = value.call.func if isinstance(value, Result) else None
    return isinstance(made, Result) and made.call.name.startswith("torch.nn.")


def _ends_the_step(statement: ast.AST) -> bool:
    """Whether a backward pass may have run behind ``statement``."""
    for node in ast.walk(statement):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if "backward" in name or name in ("grad", "step"):
            return True
    return False
