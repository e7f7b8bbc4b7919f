"""Loops in which a call gets what it gave in the iteration before."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, returned_by
from ...facts.parameters import positional_names
from ...facts.surroundings import parents_in
from ...facts.values import Method
from ..conditions.first_iteration import leaves_out_first
from ..conditions.guards import own_guards
from ..events import Checkpoint
from .frames import call_beside
from .iterations import changes_by_iteration
from .statements import base_name, body_around, stored_under

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...facts.values import Call, Function, Guard, Loop
    from ..history import History


def receiver_name(call: Call) -> str:
    """The variable whose method ``call`` calls; empty for anything else."""
    attribute = call.attribute
    return attribute.value.id if attribute is not None and isinstance(attribute.value, ast.Name) else ""


def cuts_own_result(run: History, cut: Call, event: Call, name: str) -> bool:
    """Whether each iteration of a loop cuts off ``name``, gives that to ``event`` and keeps the result under ``name``.

    The first iteration may leave ``name`` as it is: it has no result yet. Nothing else of the loop reads the variable,
    or calls something: a loss of each iteration would give gradients all the same.
    """
    loop = event.place.loops[-1] if event.place.loops else None
    if not isinstance(loop, ast.For | ast.While) or stored_under(run, event) != {name}:
        return False
    body = body_around(run, event)
    if _asked_later(cut, loop, body) != _asked_later(event, loop, body):
        return False
    segments = _segments(run, event, name)
    parts = [part for statement in loop.body for part in all_nodes(statement)]
    if not all(_is_own(part, cut, segments) for part in parts if isinstance(part, ast.Call)):
        return False
    kept = _kept_under(cut.node, event.node, loop)
    inputs = [part for argument in event.node.args[1:] for part in all_nodes(argument)]
    gets_kept = {id(part) for part in inputs if isinstance(part, ast.Name) and part.id == kept}
    first_inputs = [argument for segment in segments if segment is not event for argument in segment.node.args[1:]]
    meant = [*first_inputs, *_ways_beside(cut.node, loop)]
    own = {id(part) for node in meant for part in all_nodes(node)}
    own |= set() if cut.node in inputs else gets_kept
    loads = [part for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
    return bool(gets_kept) and all(
        id(part) in own or _is_marked(part, parts) for part in loads if part.id in (name, kept)
    )


def _asked_later(call: Call, loop: Loop, body: ast.AST) -> list[Guard]:
    """The conditions around ``call``, but those that leave out the first iteration of ``loop``, in ``body``, alone."""
    return [guard for guard in own_guards(call.place) if not leaves_out_first(guard, loop, body)]


def _segments(run: History, event: Call, name: str) -> list[Call]:
    """The checkpoints of the loop around ``event`` with results under ``name``, of a first iteration perhaps."""
    alike = (it.call for it in run.of(Checkpoint) if it.place.loops == event.place.loops)
    return [call for call in alike if call is event or stored_under(run, call) == {name}]


def _kept_under(cut: ast.Call, event: ast.Call, loop: ast.AST) -> str:
    """The variable in which ``event`` gets what ``cut`` leaves; that of the tensor where it gets it right there."""
    if any(part is cut for part in all_nodes(event)):
        return ast.unparse(cut.func.value) if isinstance(cut.func, ast.Attribute) else ""
    parents = parents_in(loop)
    around: ast.AST | None = parents.get(_leaf_of(cut, loop) or cut)
    around = parents.get(around) if isinstance(around, ast.IfExp) else around
    return next(iter(_variable(around)), "")


def _ways_beside(cut: ast.Call, loop: ast.AST) -> list[ast.AST]:
    """``cut``, what stands beside it in a conditional expression, or what its variable gets in a first iteration."""
    parents = parents_in(loop)
    around = parents.get(_leaf_of(cut, loop) or cut)
    statement = parents.get(around) if isinstance(around, ast.IfExp) else around
    others = _first_values(statement, parents) if isinstance(statement, ast.Assign) else []
    return [cut, *([around] if isinstance(around, ast.IfExp) else []), *others]


def _first_values(statement: ast.Assign, parents: Mapping[ast.AST, ast.AST]) -> list[ast.AST]:
    """What the other branch of the condition around ``statement`` assigns to the same variable."""
    condition, target = parents.get(statement), ast.unparse(statement.targets[0])
    if not isinstance(condition, ast.If):
        return []
    assigned = [part for part in (*condition.body, *condition.orelse) if isinstance(part, ast.Assign)]
    return [part.value for part in assigned if part is not statement and ast.unparse(part.targets[0]) == target]


def _is_marked(name: ast.Name, parts: Sequence[ast.AST]) -> bool:
    """Whether ``name`` is read for `x.requires_grad_()` alone."""
    return any(
        isinstance(part, ast.Attribute) and part.value is name and part.attr == "requires_grad_" for part in parts
    )


def is_read_beside(run: History, cut: Call, event: Call) -> bool:
    """Whether the loop around ``cut``, if there is one, does something else with what ``event`` gives."""
    moment = call_beside(run, cut, event) or cut
    if not moment.place.loops:
        return True
    own = {id(part) for node in (moment.node, event.node) for part in all_nodes(node)}
    results = stored_under(run, event)
    loads = (part for part in all_nodes(moment.place.loops[-1]) if isinstance(part, ast.Name))
    return any(it.id in results and isinstance(it.ctx, ast.Load) and id(it) not in own for it in loads)


def goes_on_through_helper(run: History, cut: Call, event: Call) -> bool:
    """Whether a function makes ``event`` and gives what ``cut`` leaves of it, which each iteration gives it again.

    `x = recomputed(block, x)` in a loop over blocks.
    """
    path, function = run.path_to(cut), cut.place.function
    if len(path) < 2 or function is None or event.place.function is not function:
        return False
    caller = path[-2]
    stored = stored_under(run, caller)
    gives_it = any(cut.node in all_nodes(value) for value in returned_by(function.node))
    goes_on = any(base_name(given) in stored for given in _arguments(caller.node))
    blocks = _given_for(caller, function, event.node.args[:1])
    varies = any(changes_by_iteration(block, caller.place) for block in blocks)
    return gives_it and goes_on and varies and bool(caller.place.loops)


def _given_for(caller: Call, function: Function, run_again: Sequence[ast.expr]) -> list[ast.expr]:
    """What ``caller`` gives for the parameters of ``function`` that a checkpoint in it runs, in a closure perhaps."""
    written = caller.written_arguments(positional_names(function.node)[isinstance(caller.func, Method) :])
    asked = set[str]().union(*map(names_in, run_again))
    for part in all_nodes(function.node):
        if isinstance(part, ast.FunctionDef) and part.name in asked:
            called = [inner.func for inner in all_nodes(part) if isinstance(inner, ast.Call)]
            asked |= {name.id for name in called if isinstance(name, ast.Name)}
    return [given for name, given in written.items() if name in asked]


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(word.value for word in node.keywords)]


def _is_own(part: ast.Call, cut: Call, segments: Sequence[Call]) -> bool:
    """Whether ``part`` is ``cut``, one of ``segments``, what that calls or runs, or marks a leaf; or tells a text."""
    marks = isinstance(part.func, ast.Attribute) and part.func.attr == "requires_grad_"
    own = [node for it in segments for node in (it.node, it.node.func, *it.node.args[:1])]
    return marks or _tells(part) or any(part is node for node in (cut.node, *own))


def _tells(part: ast.Call) -> bool:
    """`logger.debug("done")`, which reads no variable of the function."""
    is_method = isinstance(part.func, ast.Attribute) or ast.unparse(part.func) == "print"
    is_text = bool(part.args) and all(isinstance(given, ast.Constant) for given in part.args)
    return is_method and is_text and not part.keywords


def leaf_for_next_iteration(cut: ast.Call, name: str, loop: ast.AST, also: Sequence[ast.expr]) -> str:
    """The variable `x` of `x = y.detach().requires_grad_()`, which is ``cut`` of ``name``; empty for anything else.

    Nothing of ``loop`` reads `y` but ``cut``, and nothing reads `x` but ``also`` does, and ``cut`` where both are one.
    """
    leaf = _leaf_of(cut, loop)
    for stored in _variable(parents_in(loop).get(leaf)) if leaf is not None else ():
        cuts = {id(node) for node in all_nodes(cut)}
        given = {id(node) for part in also for node in all_nodes(part)}
        readers = {name: cuts, stored: given} if stored != name else {name: cuts | given}
        loads = [node for node in all_nodes(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        is_leaf = all(id(node) in readers[node.id] for node in loads if node.id in readers)
        return stored if is_leaf and any(id(node) in given for node in loads if node.id == stored) else ""
    return ""


def _leaf_of(cut: ast.Call, loop: ast.AST) -> ast.Call | None:
    """The call `y.detach().requires_grad_()` around ``cut``."""
    parents = parents_in(loop)
    method = parents.get(cut)
    leaf = parents.get(method) if isinstance(method, ast.Attribute) and method.attr == "requires_grad_" else None
    return leaf if isinstance(leaf, ast.Call) else None


def _variable(statement: ast.AST | None) -> frozenset[str]:
    """The one variable that ``statement`` assigns to."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return frozenset((name,))
    return frozenset()
