"""Entries of one list or dict that each iteration of a loop fills from another one: `kept[i] = run(kept[i - 1])`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes, source_text
from ...facts.straight import only_value
from ...facts.surroundings import parents_in
from ..calls.call_targets import call_targets
from ..calls.put_back import given_for
from .frames import call_beside
from .statements import body_around

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Call, Function
    from ..history import History


def cuts_entries(run: History, cut: Call, checkpoint: Call) -> bool:
    """Whether ``cut`` detaches what an iteration gets of the one before, or hands on to the next, in one container.

    `kept[name] = checkpoint(stage, kept[last].detach())`, or `y = checkpoint(stage, kept[i])` and
    `kept[i + 1] = y.detach()`.
    """
    if not cut.place.loops or cut.place.loops != checkpoint.place.loops:
        return False
    parents = parents_in(body_around(run, checkpoint))
    given = {name for argument in checkpoint.node.args[1:] for name in _containers(argument)}
    if len(checkpoint.node.args) == 2:  # beside another input it is a memory
        given.add(_container(checkpoint.node.args[1]))
    result = _stored(checkpoint.node, parents)
    if cut.node in checkpoint.node.args[1:]:
        return _container(result) in given and _container(result) != ""
    source = cut.attribute.value if cut.attribute is not None else None
    if not isinstance(source, ast.Name) or not isinstance(result, ast.Name) or source.id != result.id:
        return False
    kept = _stored(cut.node, parents)
    around = parents.get(kept) if kept is not None else None
    reads = _reads(cut.place.loops[-1], result.id)
    # What reads the result besides hands it on with its gradient: `kept` is a memory beside it then.
    is_only_kept = around is not None and all(part in [*all_nodes(around)] for part in reads)
    return _container(kept) in given - {""} and is_only_kept


def cuts_entries_in_helper(run: History, cut: Call, checkpoint: Call) -> bool:
    """The same where a function of the program keeps what it is given: `def keep(self, h): self.kept[i] = h.detach()`.

    Its caller checkpoints what it takes out of that container, and does nothing else with the result in the loop.
    """
    keeping, function = call_beside(run, cut, checkpoint), cut.place.function
    if keeping is None or function is None or [*run.path_to(cut)][-2:-1] != [keeping]:
        return False
    if not keeping.place.loops or keeping.place.loops != checkpoint.place.loops or keeping.order < checkpoint.order:
        return False
    if keeping.place.deeper_than(checkpoint.place) or cut.place.guards != keeping.place.guards:
        return False
    result = _stored(checkpoint.node, parents_in(body_around(run, checkpoint)))
    kept, source = _kept_in(run, cut), cut.attribute.value if cut.attribute is not None else None
    if not isinstance(result, ast.Name) or kept is None or source is None:
        return False
    given = given_for(function, keeping, source)
    if not isinstance(given, ast.Name) or given.id != result.id:
        return False
    if [it for it in _reads(checkpoint.place.loops[-1], result.id) if it not in [*all_nodes(keeping.node)]]:
        return False
    return any(_holds(run, argument, function, keeping, kept) for argument in checkpoint.node.args[1:])


def _kept_in(run: History, cut: Call) -> ast.expr | None:
    """The container of `kept[i] = y.detach()` and `kept.append(y.detach())`, as it is written there."""
    match parents_in(body_around(run, cut)).get(cut.node):
        case ast.Call(func=ast.Attribute(value=held, attr="append" | "appendleft")):
            return held
        case ast.Assign(targets=[ast.Subscript(value=held)], value=value) if value is cut.node:
            return held
    return None


def _holds(run: History, argument: ast.expr, function: Function, keeping: Call, kept: ast.expr) -> bool:
    """Whether ``argument``, beside the call ``keeping`` of ``function``, is an entry of what that function keeps."""
    taken, of = _taken_from(argument), keeping.attribute.value if keeping.attribute is not None else None
    if taken is not None and isinstance(taken, ast.Name | ast.Attribute):
        held = given_for(function, keeping, kept) if isinstance(kept, ast.Name) else None
        is_own = of is not None and _seen_from(kept, of) == source_text(taken)
        return is_own or source_text(held or kept) == source_text(taken)
    # `self.store.get(i)` beside `self.store.put(i, y)`
    match argument:
        case ast.Call(func=ast.Attribute(value=owner)) if of is not None and source_text(owner) == source_text(of):
            for call in run.calls_at(argument):
                for target in call_targets(call.func):
                    given = only_value(target.function.node)
                    entry = _taken_from(given) if given is not None else None
                    return entry is not None and source_text(entry) == source_text(kept)
    return False


def _seen_from(kept: ast.expr, owner: ast.expr) -> str:
    """An attribute of the object, `self.kept` in a method, as who calls `store.put(...)` writes it."""
    match kept:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"{source_text(owner)}.{name}"
    return ""


def cuts_kept_leaf(run: History, cut: Call, checkpoint: Call) -> bool:
    """Whether ``cut`` makes the leaf that the next iteration of a loop gets out of a container, and nothing else does.

    `y = checkpoint(stage, kept[-1])` and `kept.append(y.detach().requires_grad_())`. Who reads the container besides,
    or the result within the loop, may run a backward pass by hand or have a loss for each result.
    """
    loop = cut.place.loops[-1] if cut.place.loops else None
    if loop is None or cut.place.loops != checkpoint.place.loops or cut.place.deeper_than(checkpoint.place):
        return False
    body = body_around(run, checkpoint)
    parents = parents_in(body)
    result, source = _stored(checkpoint.node, parents), cut.attribute.value if cut.attribute is not None else None
    if not isinstance(result, ast.Name) or not isinstance(source, ast.Name) or source.id != result.id:
        return False
    kept_in = _keeper(_leaf_of(cut.node, parents), parents)
    if kept_in is None or _reads(loop, result.id) != [source]:
        return False
    of_container = _reads(body, kept_in.id)
    taken_out = {_taken_from(part): part for argument in checkpoint.node.args[1:] for part in all_nodes(argument)}
    if not all(part is kept_in or part in taken_out for part in of_container):
        return False
    entries = [taken_out[part] for part in of_container if part is not kept_in]
    return bool(entries) and all(_may_take(entry, parents.get(kept_in)) for entry in entries)


def _may_take(entry: ast.AST, kept: ast.AST | None) -> bool:
    """Whether ``entry`` may be what ``kept`` put in: `kept[0]` is not what is appended."""
    match entry, kept:
        case ast.Subscript(slice=ast.Constant(value=asked)), ast.Subscript(slice=ast.Constant(value=key)):
            return bool(asked == key)
        case ast.Subscript(slice=ast.Constant()), _:
            return False
        case _, ast.Subscript(slice=ast.Constant()):
            return False
    return True


def goes_on_besides(cut: Call, result: str, checkpoint: Call) -> bool:
    """Whether ``checkpoint`` gets the variable ``result``, of which ``cut`` keeps a detached copy, as it is, too.

    By itself, or by a variable that an iteration sets to it: `h = y`.
    """
    given = {name for argument in checkpoint.node.args[1:] for name in names_in(argument)}
    loop = cut.place.loops[-1] if cut.place.loops else None
    if result in given or loop is None:
        return result in given
    for statement in all_nodes(loop):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in given and result in names_in(value):
                if not any(part in (cut.node, checkpoint.node) for part in all_nodes(value)):
                    return True
    return False


def _reads(body: ast.AST, name: str) -> list[ast.Name]:
    """Where ``body`` reads the variable ``name``."""
    named = (part for part in all_nodes(body) if isinstance(part, ast.Name) and part.id == name)
    return [part for part in named if isinstance(part.ctx, ast.Load)]


def _taken_from(node: ast.AST) -> ast.expr | None:
    """The container that ``node`` takes an entry of: `kept[i]`, `kept.pop()`."""
    match node:
        case ast.Subscript(value=container) | ast.Call(func=ast.Attribute(value=container, attr="pop")):
            return container
    return None


def _leaf_of(cut: ast.Call, parents: Mapping[ast.AST, ast.AST]) -> ast.AST | None:
    """The call `y.detach().requires_grad_()` around ``cut``, or the variable that it is kept under, where it is read.

    Read once, that is: who reads it twice does something else with it too.
    """
    method = parents.get(cut)
    leaf = parents.get(method) if isinstance(method, ast.Attribute) and method.attr == "requires_grad_" else None
    match parents.get(leaf) if leaf is not None else None:
        case ast.Assign(targets=[ast.Name(id=name)]):
            reads = [part for part in parents if isinstance(part, ast.Name) and part.id == name]
            reads = [part for part in reads if isinstance(part.ctx, ast.Load)]
            return reads[0] if len(reads) == 1 else None
    return leaf


def _keeper(kept: ast.AST | None, parents: Mapping[ast.AST, ast.AST]) -> ast.Name | None:
    """The name of the container as it stands where ``kept`` is put into it."""
    match parents.get(kept) if kept is not None else None:
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="append")):
            return name
        case ast.Assign(targets=[ast.Subscript(value=ast.Name() as name)], value=value) if value is kept:
            return name
    return None


def _containers(node: ast.expr) -> list[str]:
    return [_container(part) for part in all_nodes(node) if isinstance(part, ast.Subscript)]


def _container(node: ast.AST | None) -> str:
    """`kept` of `kept[i]`, and `self.kept` of `self.kept[i]` and `self.kept`."""
    match node:
        case ast.Subscript(value=ast.Name() | ast.Attribute(value=ast.Name()) as held):
            return source_text(held)
        case ast.Attribute(value=ast.Name(id="self")):
            return source_text(node)
    return ""


def _stored(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.expr | None:
    """Where an assignment stores ``node``, by itself or as one of two ways."""
    around = parents.get(node)
    if isinstance(around, ast.IfExp) and node is not around.test:
        around = parents.get(around)
    return around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
