"""Names that a checkpointed function reads when it runs, and that change before it runs again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import cells_in, is_own_attribute, names_in, own_attributes
from ...facts.nodes import all_nodes, inner_nodes, is_behind, is_inside, returned_by
from ...facts.objects.containers import length_of
from ..events import AutogradGrad, Backward, Checkpoint, GradientSwitch
from ..flow.iterations import blocks_of, happens_in_iteration, is_in_one_iteration, is_last_iteration
from ..state.own_attributes import own_place
from ..tensors.gradless import is_gradless
from .free_variables import free_names
from .loop_invariants import names_changed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...facts.values import Call, Function, FunctionNode, Loop
    from ..events import Event
    from ..run import Run

#: Methods that give the values they were called on, on another device or in another layout.
_KEEP_VALUES = frozenset(("to", "cuda", "cpu", "contiguous", "clone", "detach", "type_as"))
#: What tells the form of a tensor, not its values.
_FORM = frozenset(("shape", "dtype", "device", "size", "ndim", "dim", "new_zeros", "new_ones"))
#: Functions and methods that take the form of their first argument.
_LIKE = frozenset(("view_as", "expand_as", "reshape_as", "type_as", "to", "zeros_like", "ones_like", "empty_like"))
_LEAVES = ast.Return | ast.Raise | ast.Break | ast.Continue


def leading_call(run: Run, event: Checkpoint, function: Function) -> Call | None:
    """The call that stands where ``function`` is made and leads to ``event``: its own, or that of a helper.

    `self.remat(lambda h: layer(h), x)` hands the function over to a method that makes the checkpoint.
    """
    way = run.path_to(event.call) or [event.call]
    return next((call for call in reversed(way) if call.place.function is function.place.function), None)


def changed_names(run: Run, event: Checkpoint, function: Function, leading: Call) -> tuple[str, ...]:
    """The names ``function`` reads that a loop around both it and the checkpoint binds before the backward pass.

    Args:
        run: The run that ``event`` is of.
        event: The checkpoint.
        function: What it checkpoints.
        leading: The call that leads to the checkpoint from where the function is made.

    Returns:
        Variables (`layer`), attributes of the object itself (`self.layer`) and items of what all iterations share
        (`index[0]`), sorted; empty when the recomputation reads what the forward pass read.
    """
    # What the function sets itself is its own state, not the loop's.
    read = free_names(function.node) | _own_attributes_read(function.node)
    found: set[str] = set()
    for loop in function.place.loops:
        if loop not in leading.place.loops:
            continue
        rebound = names_changed_by(loop, function.node) | own_attributes(loop, ast.Store)
        late = (read & rebound) | _changed_cells(function, loop)
        if late and not keeps_names(run, event, leading, loop):
            found |= late
    return tuple(sorted(found))


def _own_attributes_read(function: FunctionNode) -> frozenset[str]:
    """The attributes of `self` that ``function`` reads when it runs, and not when it is made, as its defaults are."""
    body: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else [*function.body]
    read = frozenset[str]().union(*(own_attributes(part, ast.Load) for part in body))
    return read - own_attributes(function, ast.Store)


def _changed_cells(function: Function, loop: Loop) -> frozenset[str]:
    """The items that ``function`` reads of something made in front of ``loop``, and that each iteration sets anew."""
    cells = cells_in(function.node, ast.Load)
    if not cells:
        return frozenset()
    held = free_names(function.node) - names_changed_by(loop, function.node)
    return frozenset(text for text in _cells_set_by(loop, function) if cells.get(text) in held)


def _cells_set_by(loop: Loop, function: Function) -> set[str]:
    found: set[str] = set()
    for part in all_nodes(loop):
        match part:
            case ast.Assign(targets=targets, value=value) if not isinstance(value, ast.Constant):
                found |= {text for target in targets for text in cells_in(target, ast.Store)}
            case ast.AugAssign(target=target):
                found |= cells_in(target, ast.Store).keys()
    return found - cells_in(function.node, ast.Store).keys()


def names_of_later_loop(run: Run, event: Checkpoint, function: Function) -> tuple[str, ...]:
    """The names and items ``function`` reads that a loop behind it, around the checkpoint alone, sets."""
    if function.place.function is not event.place.function:
        return ()
    read, found = free_names(function.node), set[str]()
    for loop in event.place.loops:
        if not isinstance(loop, ast.For | ast.AsyncFor) or loop in function.place.loops:
            continue
        late = (read & names_in(loop.target)) | _changed_cells(function, loop)
        if late and not keeps_names(run, event, event.call, loop):
            found |= late
    return tuple(sorted(found))


def names_bound_afterwards(run: Run, event: Checkpoint, function: Function) -> tuple[str, ...]:
    """The names ``function`` reads that the function around it surely binds anew behind the checkpoint.

    That may be what the checkpoint gives: `x = checkpoint(lambda h: layer(h) * x, h)`. Empty where the function around
    it runs a backward pass.
    """
    around = event.place.function
    if around is None or function.place.function is not around or isinstance(around.node, ast.Lambda):
        return ()
    if any(_happens_in(run, backward, around) for backward in run.of(Backward, AutogradGrad)):
        return ()
    read, found = _names_that_count(function.node), set[str]()
    for statement in _statements_after(around.node.body, event.node):
        if isinstance(statement, _LEAVES):
            break
        found |= {name for name in _names_set_by(statement) if name in read and not _keeps_value(statement, name)}
    return tuple(sorted(found))


def _happens_in(run: Run, event: Event, function: Function) -> bool:
    """Whether ``event`` happens in ``function``, or in a function that is called there."""
    if event.place.function is function:
        return True
    return any(place.function is function for call in event.place.stack for place in run.places(call))


def _names_that_count(function: FunctionNode) -> frozenset[str]:
    """The free names of ``function`` whose values its gradients need: not only given back, or asked for form."""
    counted = {part.id for part in _parts_that_count(function) if isinstance(part, ast.Name)}
    return free_names(function) & counted


def own_state_that_counts(function: FunctionNode) -> frozenset[str]:
    """What `self` holds whose values the gradients of ``function`` need, but for defaults: `level`, `ctx.level`."""
    early = {id(part) for default in _defaults(function) for part in all_nodes(default)}
    parts = (it for it in _parts_that_count(function) if isinstance(getattr(it, "ctx", None), ast.Load))
    parts = (it for it in parts if id(it) not in early)
    return frozenset(part.attr if is_own_attribute(part) else own_place(part) for part in parts)


def _defaults(function: FunctionNode) -> list[ast.expr]:
    return [*function.args.defaults, *(it for it in function.args.kw_defaults if it is not None)]


def _parts_that_count(function: FunctionNode) -> list[ast.AST]:
    parts = list(all_nodes(function))
    without = {id(part) for value in returned_by(function) for part in _given_back(value)}
    without |= {id(asked) for part in parts for asked in _asked_for_form(part)}
    return [part for part in parts if id(part) not in without]


def _given_back(value: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose values stand in a result as they are, or as terms of a sum."""
    match value:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            parts = [left, right]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            pass
        case _:
            yield value
            return
    for part in parts:
        yield from _given_back(part)


def _asked_for_form(part: ast.AST) -> list[ast.expr]:
    """What ``part`` asks for its form alone: `x` in `x.shape` and in `h.view_as(x)`."""
    match part:
        case ast.Attribute(value=value, attr=name) if name in _FORM:
            return [value]
        case ast.Call(func=ast.Attribute(attr=name), args=[value, *_]) if name in _LIKE:
            return [value]
    return []


def _statements_after(block: Sequence[ast.stmt], node: ast.AST) -> Iterator[ast.stmt]:
    """The simple statement that ``node`` is in, and those that follow it; behind one that leaves, none is sure to."""
    inside = next((index for index, statement in enumerate(block) if is_inside(node, statement)), None)
    if inside is None:
        return
    statement = block[inside]
    inner = list(blocks_of(statement))
    if not any(inner):
        yield statement
    for held in inner:
        yield from _statements_after(held, node)
    for later in block[inside + 1 :]:
        yield from later.body if isinstance(later, ast.With) else (later,)


def _names_set_by(statement: ast.stmt) -> frozenset[str]:
    match statement:
        case ast.Assign(targets=targets):
            parts = (part for target in targets for part in all_nodes(target))
            return frozenset(part.id for part in parts if isinstance(part, ast.Name) and _is_store(part))
        case ast.AugAssign(target=ast.Name(id=name)) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return frozenset((name,))
    return frozenset()


def _keeps_value(statement: ast.stmt, name: str) -> bool:
    """Whether the statement gives ``name`` the value that it has: `mask = mask.to(x.device)`."""
    value = getattr(statement, "value", None)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEP_VALUES:
        value = value.func.value
    return isinstance(value, ast.Name) and value.id == name and not isinstance(statement, ast.AugAssign)


def names_of_last_iteration(run: Run, event: Checkpoint) -> tuple[str, ...]:
    """The names in what is checkpointed that a loop binds anew around the function that the checkpoint stands in.

    That function is kept, as the `forward` of a module or in a list, and runs when the loop is over. Empty when it
    is bound to its iteration or called in it, and where the iteration is the last one or runs its own backward pass.
    """
    around = event.place.function
    if around is None or not around.place.loops or not event.node.args:
        return ()
    read = free_names(around.node) & names_in(event.node.args[0])
    loop = around.place.loops[-1]
    late = read & names_changed_by(loop, around.node)
    if not late or is_last_iteration(loop, around.node) or _has_backward(run, loop) or not _is_kept(around, loop):
        return ()
    return tuple(sorted(late))


def names_of_finished_loop(run: Run, function: Function, leading: Call | None) -> tuple[str, ...]:
    """The names ``function`` reads of a loop that collects what its iterations make, and that is over when it runs.

    Args:
        run: The run.
        function: What is checkpointed.
        leading: The call that leads to the checkpoint from where the function is made; None where it runs elsewhere.
    """
    loop = function.place.loops[-1] if function.place.loops else None
    if loop is None or (leading is not None and loop in leading.place.loops):
        return ()
    late = _names_that_count(function.node) & names_changed_by(loop, function.node)
    is_alone = is_last_iteration(loop, function.node) or is_in_one_iteration(function.place, loop)
    if not late or is_alone or _has_backward(run, loop) or not _is_kept(function, loop):
        return ()
    return tuple(sorted(late))


def _is_kept(function: Function, loop: Loop) -> bool:
    """Whether each iteration of ``loop`` stores ``function`` in an attribute or in a container."""
    if isinstance(loop, ast.comprehension):
        return True

    def means(node: ast.AST) -> bool:
        return node is function.node or (isinstance(node, ast.Name) and node.id == function.name)

    for part in all_nodes(loop):
        match part:
            case ast.Call(func=func) if means(func):
                return False
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_], value=value) if _gives(value, means):
                return True
            case ast.Call(func=ast.Name("setattr"), args=[_, _, value]) if _gives(value, means):
                return True
            case ast.Call(func=ast.Attribute(attr="append"), args=[value]) if _gives(value, means):
                return True
    return False


def _gives(value: ast.AST, means: Callable[[ast.AST], bool]) -> bool:
    """Whether ``value`` is the function itself, or bound to an object: `MethodType(run, layer)`."""
    return means(value) or (isinstance(value, ast.Call) and any(map(means, value.args[:1])))


def keeps_names(run: Run, event: Checkpoint, leading: Call, loop: Loop) -> bool:
    """Whether the names of ``loop`` are the same in the backward pass, or no region needs them there."""
    return (
        _has_backward(run, loop)
        or is_last_iteration(loop, leading.node)
        or is_in_one_iteration(leading.place, loop)
        or _replays_last_iteration_only(run, event, leading, loop)
    )


def _has_backward(run: Run, loop: Loop) -> bool:
    """Whether each iteration of ``loop`` runs its own backward pass."""
    return any(happens_in_iteration(run, backward, loop) for backward in run.of(Backward, AutogradGrad))


def _replays_last_iteration_only(run: Run, event: Checkpoint, leading: Call, loop: Loop) -> bool:
    """Whether nothing trains in front of the last block, so that only its region runs again, with the right name."""
    blocks = _count(leading.place.function, loop)
    frozen = max((switch.leading for switch in run.of(GradientSwitch)), default=0)
    last = blocks is not None and 0 < blocks - 1 <= frozen
    return last and all(is_gradless(run, value) for value in event.inputs)


def _count(function: Function | None, loop: Loop) -> int | None:
    """How many blocks the attribute `self.blocks` holds that ``loop``, in a method, goes through."""
    owner = function.owner if function is not None else None
    iterated = None if isinstance(loop, ast.While) else loop.iter
    names = [part.attr for part in all_nodes(iterated) if isinstance(part, ast.Attribute)] if iterated else []
    if owner is None or len(names) != 1 or names[0] not in owner.fields:
        return None
    return length_of(owner.fields[names[0]])


def may_be_rebound(event: Checkpoint, function: Function, names: tuple[str, ...]) -> bool:
    """Whether a statement between the one that makes ``function`` and ``event`` binds one of ``names``."""
    around = event.place.function
    loops = [loop for loop in event.place.loops if isinstance(loop, ast.stmt)]
    bodies: Sequence[ast.AST] = loops if around is None else [around.node]
    between = (statement for body in bodies for statement in _statements_between(body, function.node, event.node))
    bound = (name for statement in between for part in _binding(statement, event.node) for name in all_nodes(part))
    return any(isinstance(name, ast.Name) and _is_store(name) and name.id in names for name in bound)


def _statements_between(body: ast.AST, made: ast.AST, used: ast.AST) -> Iterator[ast.stmt]:
    """The statements in ``body`` that begin behind ``made`` and in front of ``used``."""
    waiting = list(inner_nodes(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            if is_behind(made, node) or is_behind(node, used):
                continue
            if is_behind(node, made):
                yield node
        waiting += inner_nodes(node)


def _binding(statement: ast.stmt, used: ast.AST) -> list[ast.AST]:
    """The parts of ``statement`` itself that bind names before ``used`` runs; an assignment of it does so behind."""
    match statement:
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            return [] if is_inside(used, statement) else [statement]
        case ast.For(target=target) | ast.AsyncFor(target=target):
            return [target]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return [*items]
    return []


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
