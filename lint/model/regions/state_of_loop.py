"""Attributes that a loop around a checkpoint sets for its region, which reads the last ones when it runs again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import is_own_attribute, names_in
from ...facts.nodes import all_nodes
from ...facts.objects.classes import is_torch_module, related
from ...facts.parameters import positional_names
from ...facts.values import Call, Function, Instance, Method, Partial, Value, one, options
from ..state.own_attributes import own_place
from ..state.updates import computes_with
from ..types import unwrapped
from .late_binding import keeps_names, own_state_that_counts
from .loop_invariants import names_changed_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Class, FunctionNode, Loop
    from ...facts.walk import Write
    from ..events import Checkpoint
    from ..run import Run
    from .region import Region

#: What belongs to a step of training: the backward pass of an iteration is over before the next one begins.
_OF_STEPS = ("step", "zero_grad", "backward", "manual_backward")


class SetInLoop(NamedTuple):
    """What each iteration sets, as the region names it, and where."""

    name: str
    node: ast.AST


def attributes_of_last_iteration(run: Run, event: Checkpoint) -> Iterator[SetInLoop]:
    """The attributes that a region computes with and each iteration of a loop around its checkpoint sets anew."""
    writes = [it for it in run.writes if it.place.walk == event.place.walk and _is_late(it)]
    around = [(call, loop) for call in run.path_to(event.call) for loop in call.place.loops] if writes else []
    if not around:
        return
    region = run.region(event)
    inside = {function.node for function in region.functions}
    for write in writes:
        function = write.place.function
        if function is None or function.node in inside or write.place.deeper_than(event.place):
            continue
        state = _state_read(run, event, region, write)
        if state and any(_is_set_by(run, event, write, *it) for it in around):
            yield SetInLoop(f"self.{state}", write.node)


def _is_late(write: Write) -> bool:
    return write.place.function is not None and write.place.function.name != "__init__"


def _state_read(run: Run, event: Checkpoint, region: Region, write: Write) -> str:
    """What ``write`` sets, as the region names it that computes with that very object; empty where none does."""
    function = write.place.function
    place = _own_part(write)
    own = function.owner if place and function is not None else None
    if own is not None and _computes(run, event, region, own.instance, place):
        return place
    owners = {option.cls for option in options(write.obj) if isinstance(option, Instance)}
    is_known = len(owners) == 1 and not write.is_item
    return write.field if is_known and _computes(run, event, region, write.obj, write.field) else ""


def _own_part(write: Write) -> str:
    """The part of what `self` holds that ``write`` sets, as text: `ctx.level`, `state["level"]`."""
    match write.node:
        case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
            return own_place(target)
    return ""


def _computes(run: Run, event: Checkpoint, region: Region, obj: Value, state: str) -> bool:
    """Whether ``region`` computes with the ``state`` of ``obj`` as it finds it."""
    owner = next(option.cls for option in options(obj) if isinstance(option, Instance))
    if not _is_the_one(run, event, region, obj, owner):
        return False
    own = [it.node for it in region.functions if it.owner is not None and related(it.owner, owner)]
    around = event.place.function
    # A lambda in a method reads the object of that.
    if around is not None and around.owner is owner:
        own += [it.node for it in region.functions if it.is_lambda and it.place.function is around]
    if any(_sets(node, state) for node in own):
        return False  # What the region sets itself is its own state, not the loop's.
    counting = [node for node in own if state in own_state_that_counts(node)]
    is_result = any(isinstance(node, ast.Lambda) for node in counting) or computes_with(region, owner, state)
    return bool(counting) and is_result


def _sets(function: FunctionNode, state: str) -> bool:
    """Whether ``function`` sets ``state``, or the object that it is a part of."""
    stores = (it for it in all_nodes(function) if isinstance(getattr(it, "ctx", None), ast.Store))
    held = state.partition(".")[0].partition("[")[0]
    return any(own_place(it) == state or (is_own_attribute(it) and it.attr in (state, held)) for it in stores)


def _is_the_one(run: Run, event: Checkpoint, region: Region, obj: Value, owner: Class) -> bool:
    """Whether the object of ``owner`` in ``region`` is ``obj``: what is entered, or the only one there is."""
    for option in options(event.function):
        entered = option.func if isinstance(option, Partial) else option
        if isinstance(entered, Method) and (one(entered.receiver, obj) or _is_self(entered.receiver, event, owner)):
            return True
        if isinstance(entered, Instance) and one(unwrapped(entered), obj):
            return True
        around = event.place.function
        # A function in a method runs the methods of the same object.
        if isinstance(entered, Function) and around is not None and around.owner is owner:
            return not any(isinstance(module, Instance) and module.cls is owner for module in region.modules)
    return sum(call.func is owner for call in run.program.calls) == 1


def _is_self(receiver: Value | None, event: Checkpoint, owner: Class) -> bool:
    """Whether ``receiver`` is the object of ``owner`` whose method makes the checkpoint."""
    around = event.place.function
    is_own = isinstance(receiver, Instance) and receiver.cls is owner
    return is_own and around is not None and around.owner is owner and "self." in ast.unparse(event.node.args[0])


def _is_set_by(run: Run, event: Checkpoint, write: Write, call: Call, loop: Loop) -> bool:
    """Whether each iteration of ``loop``, around ``call`` which leads to the checkpoint, sets another value."""
    around = call.place.function
    if around is None or around.owner is None or not is_torch_module(around.owner):
        return False
    if any(loop in step.place.loops for step in run.method_calls(*_OF_STEPS)):
        return False
    callers = run.callers_of(write.place)
    moment = next(
        (it for it in (*(callers or ()), write) if it.place.stack == call.place.stack and loop in it.place.loops), None
    )
    if moment is None or callers is None or keeps_names(run, event, call, loop):
        return False
    changed = names_changed_by(loop, moment.node)
    target, value = _names_behind(write, moment)
    return target.isdisjoint(changed) and (write.augmented or not value.isdisjoint(changed))


def _names_behind(write: Write, moment: Call | Write) -> tuple[frozenset[str], frozenset[str]]:
    """The names in the object and in the value of ``write``, as ``moment``, which leads to it, writes them."""
    target = names_in(write.target.value) if write.target is not None else frozenset(("self",))
    written = write.written
    value = names_in(written) if written is not None else frozenset[str]()
    if not isinstance(moment, Call):
        return target, value
    function = write.place.function
    given: dict[str, ast.expr] = {}
    if function is not None and moment.node is write.place.stack[-1]:
        given = moment.written_arguments(positional_names(function.node)[function.owner is not None :])
    called = names_in(moment.node.func.value) if isinstance(moment.node.func, ast.Attribute) else frozenset[str]()
    behind = [
        frozenset[str]().union(
            *(called if name == "self" else names_in(given[name]) if name in given else () for name in names)
        )
        for names in (target, value)
    ]
    return behind[0], behind[1]
