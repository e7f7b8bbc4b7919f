"""Whether the same module is checkpointed more than once in a forward pass."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.identifiers import is_own_attribute, names_in
from ...facts.objects.attributes import made_at
from ...facts.parameters import positional_names
from ...facts.values import Element, Function, Instance, Method, Partial, Result, options
from ..conditions.guards import own_loops
from ..events import Backward, Checkpoint
from ..flow.frames import ways_from_shared_function
from ..flow.iterations import changes_by_iteration
from ..libraries.sharding import is_same_module
from ..tensors.gradient_free import is_gradient_free
from ..types import bases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...facts.values import Call, Loop, Place
    from ..events import CheckpointWrap
    from ..run import Run

#: The methods that a training step begins with.
_STEPS = ("forward", "training_step")


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
    if _loops_in_step(run, event.place):
        varies = changes_by_iteration(first, event.place) or _chooses_by_argument(event)
        return not varies or _goes_through_one(run, event, first)
    again = (_loops_in_step(run, call.place) for call in _own_calls(run, event))
    if _is_one_module(event) and is_own_attribute(first) and any(again):
        return True
    return _is_repeated_by_caller(run, event, first) or _is_beside_another(run, event, first)


def _goes_through_one(run: Run, event: Checkpoint, first: ast.expr) -> bool:
    """Whether the loop around ``event`` goes through one module several times: `ModuleList([block] * 4)`.

    Two calls of a function give modules that are not told apart, so the list must be written of one.
    """
    loop = event.place.loops[-1]
    if not isinstance(loop, ast.For) or not isinstance(first, ast.Name) or first.id not in names_in(loop.target):
        return False
    modules = options(event.function)
    if len(modules) != 1 or not isinstance(modules[0], Instance | Result):
        return False
    written = [part for part in _written_lists(run, loop.iter) if not isinstance(part, ast.Constant)]
    return bool(written) and all(map(_repeats_one, written)) and (run.program.iterations.get(loop) or 0) > 1


def _written_lists(run: Run, iterated: ast.expr) -> list[ast.AST]:
    """What the program stores in the attribute that a loop goes through."""
    match iterated:
        case ast.Call(func=ast.Name(id="enumerate" | "list" | "tuple"), args=[inner, *_]):
            return _written_lists(run, inner)
        case ast.Attribute(attr=field):
            stored = [write.statement for write in run.writes if write.field == field and not write.is_item]
            return [it.value if isinstance(it, ast.Assign) else ast.Pass() for it in stored]
    return []


def _repeats_one(written: ast.AST) -> bool:
    """Whether a list, perhaps in an `nn.ModuleList`, is written of one object: `[block] * n`, `[block, block]`."""
    match written:
        case ast.Call(func=ast.Attribute(attr="ModuleList") | ast.Name(id="ModuleList"), args=[inner], keywords=[]):
            return _repeats_one(inner)
        case ast.BinOp(left=ast.List(elts=[_]), op=ast.Mult()) | ast.BinOp(right=ast.List(elts=[_]), op=ast.Mult()):
            return True
        case ast.List(elts=[ast.Name() | ast.Attribute() as one, *others]):
            return bool(others) and all(ast.dump(other) == ast.dump(one) for other in others)
        case (
            ast.ListComp(elt=ast.Name(id=name), generators=[once])
            | ast.GeneratorExp(elt=ast.Name(id=name), generators=[once])
        ):
            return not once.ifs and name not in names_in(once.target)
    return False


def _is_one_module(event: Checkpoint) -> bool:
    return isinstance(event.function, Instance | Result)


def _own_calls(run: Run, event: Checkpoint) -> list[Call]:
    """The calls of methods of `self` that lead from a training step to ``event``; none where others are among them."""
    path = run.path_to(event.call)[:-1]
    own = [call for call in path if is_own_attribute(call.node.func) and isinstance(call.func, Method)]
    begins = next((number for number, call in enumerate(path) if _is_in_step(call)), len(path))
    return path[begins:] if all(call in own for call in path[begins:]) else []


def _is_in_step(call: Call) -> bool:
    return call.place.function is not None and call.place.function.name in _STEPS


def is_called_again(run: Run, wrap: CheckpointWrap) -> bool:
    """Whether a step certainly calls the one module that ``wrap`` gives several times."""
    if any(own_loops(wrap.place)):
        return False
    calls = [call for call in run.program.calls if isinstance(call.func, Result) and call.func.call is wrap.call]
    return any(
        (_loops_in_step(run, call.place) and not changes_by_iteration(call.node.func, call.place))
        or any(_follows(call, other) for other in calls)
        for call in calls
    )


def _follows(call: Call, other: Call) -> bool:
    """Whether both stand in one function, and one run of it comes to both."""
    is_other = call.node is not other.node and call.place.function is other.place.function
    return is_other and call.place.walk == other.place.walk and not call.place.excludes(other.place)


def _loops_in_step(run: Run, place: Place) -> bool:
    """Whether ``place`` is in a loop that no backward pass is in: all of its iterations belong to one step."""
    return any(loop not in _loops_over_steps(run) for loop in place.loops)


@lru_cache(maxsize=1)
def _loops_over_steps(run: Run) -> frozenset[Loop]:
    """The loops with a backward pass in each iteration."""
    calls = (call for it in run.of(Backward) for call in (*run.path_to(it.call), it.call))
    return frozenset(loop for call in calls for loop in call.place.loops)


def _is_repeated_by_caller(run: Run, event: Checkpoint, first: ast.expr) -> bool:
    """Whether a method of a module comes to ``event`` in a loop that goes on with the same module."""
    path, asked = run.path_to(event.call), [first]
    for inner, caller in zip(path[::-1], path[-2::-1], strict=False):
        given = _given_by(caller, inner, asked)
        if given is None or not _is_in_module(caller):
            return False
        if caller.place.loops:
            varies = any(changes_by_iteration(part, caller.place) for part in given)
            return not varies and _loops_in_step(run, caller.place)
        asked = given
    return False


def _given_by(caller: Call, inner: Call, asked: Sequence[ast.expr]) -> list[ast.expr] | None:
    """What ``caller`` gives for the names in ``asked``, of the function that makes ``inner``; None for other names."""
    function, attribute = inner.place.function, caller.attribute
    if function is None:
        return None
    names = positional_names(function.node)
    written = caller.written_arguments(names[isinstance(caller.func, Method) :])
    if isinstance(caller.func, Method) and attribute is not None and names:
        written[names[0]] = attribute.value
    wanted = frozenset[str]().union(*map(names_in, asked))
    return [written[name] for name in wanted] if wanted <= written.keys() else None


def _is_in_module(call: Call) -> bool:
    function = call.place.function
    owner = function.owner if function is not None else None
    return owner is not None and any(base.startswith("torch.nn.") for base in bases(owner))


def _is_beside_another(run: Run, event: Checkpoint, first: ast.expr) -> bool:
    """Whether one forward pass comes to another reentrant segment of the module, too."""
    return any(
        other.call is not event.call
        and other.reentrant is True
        and not other.place.excludes(event.place)
        and not is_gradient_free(other.call)
        and (_is_written_alike(event, other, first) or _is_one_pass(run, event, other))
        for other in run.of(Checkpoint)
    )


def _is_written_alike(event: Checkpoint, other: Checkpoint, first: ast.expr) -> bool:
    """Whether one function checkpoints the same expression in two places."""
    if other.place.function is not event.place.function or other.node is event.node or not other.node.args:
        return False
    return ast.dump(other.node.args[0]) == ast.dump(first)


def _is_one_pass(run: Run, event: Checkpoint, other: Checkpoint) -> bool:
    """Whether a method of a module comes to both, with one object, and no backward pass is between them."""
    mine, its = options(event.function), options(other.function)
    if len(mine) != 1 or len(its) != 1 or made_at(mine[0]).loops or not is_same_module(mine[0], its[0]):
        return False
    ways = ways_from_shared_function(run, event.call, other.call)
    start, end = sorted((event.order, other.order))
    apart = any(start < it.order < end for it in run.of(Backward) if it.place.walk == event.place.walk)
    return ways is not None and _is_in_module(ways.left[0]) and not apart
