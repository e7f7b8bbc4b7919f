"""On which of several objects of one class a program registers a hook: the teacher's features, not the student's."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import Instance, Method
from ..tensors.gradient_free import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call, Function, Value
    from ..history import History

#: How many variables are followed from the registration to the model.
_DEPTH = 4


def is_on_gradient_free(run: History, registration: Call) -> bool:
    """Whether the hook is on modules of objects that only ever run without gradients.

    Values don't tell the parts of two objects of a class apart; what is written for the registration names the model.
    """
    ways: dict[ast.Call, bool] = {}
    for call in run.program.calls:
        build = _build_of(_run_by(call))
        if build is not None:
            ways[build] = ways.get(build, True) and is_gradient_free(call)
    if True not in ways.values():
        return False
    named = [ways[build] for build in _named_for(run, registration) if build in ways]
    return bool(named) and all(named)


def _run_by(call: Call) -> Value:
    return call.func.receiver if isinstance(call.func, Method) else call.func


def _build_of(value: object) -> ast.Call | None:
    """What made an object of the program, a copy of one being another."""
    source = (value.copied_by or value.call) if isinstance(value, Instance) else None
    return None if source is None else source.node


def _objects_by_name(run: History) -> Mapping[tuple[ast.AST | None, str], ast.Call]:
    """What made the objects that are called or handed on under a name, by where that is and the name."""
    found = {}
    for call in run.program.calls:
        used = [(call.node.func, _run_by(call)), *zip(call.node.args, call.args, strict=False)]
        for node, value in used:
            build = _build_of(value)
            if build is not None and isinstance(node, ast.Name | ast.Attribute):
                found[_scope_of(node, call.place.function), ast.unparse(node)] = build
    return found


def _scope_of(node: ast.expr, function: Function | None) -> ast.AST | None:
    """Where the name ``node`` means one thing: its function, or the class for `self.teacher`."""
    if function is None or isinstance(node, ast.Name) or function.owner is None:
        return None if function is None else function.node
    return function.owner.node


def _named_for(run: History, registration: Call) -> Iterator[ast.Call]:
    """What made the objects that the registration names, or the calls that lead to it, or what they are given."""
    objects = _objects_by_name(run)
    for call in run.path_to(registration):
        function = call.place.function
        body = run.program.tree_with(call.node) if function is None else function.node
        nodes: list[ast.AST] = [call.node]
        nodes += [loop.iter for loop in call.place.loops if isinstance(loop, ast.For | ast.comprehension)]
        for _ in range(_DEPTH):
            names = [part for node in nodes for part in all_nodes(node) if isinstance(part, ast.Name | ast.Attribute)]
            known = {part: objects.get((_scope_of(part, function), ast.unparse(part))) for part in names}
            yield from (build for build in known.values() if build is not None)
            open_names = {part.id for part, build in known.items() if build is None and isinstance(part, ast.Name)}
            nodes = list(_bound_to(open_names, body))


def _bound_to(names: AbstractSet[str], body: ast.AST) -> Iterator[ast.expr]:
    """What assignments in ``body`` bind variables of these names to."""
    for part in all_nodes(body) if names else ():
        if isinstance(part, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in names for target in part.targets
        ):
            yield part.value
