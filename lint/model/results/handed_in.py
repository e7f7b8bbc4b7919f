"""What a checkpoint hands to its function for it to fill: `checkpoint(layer, x, losses)`, a list, a dict, an object."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import are_one_family
from ...facts.values import Dict, Function, Instance, Param, Partial, Seq, Value, options
from ..calls.call_targets import call_targets
from ..conditions.contexts import is_plain
from ..conditions.guards import own_guards
from ..events import Checkpoint, DeepSpeedCheckpoint
from .stored import Stored, has_graph, leaves_graph

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from ...facts.values import Call, Guard, Place
    from ...facts.walk import Write
    from ..events import Checkpointing
    from ..regions.region import Region
    from ..run import Run


class HandedIn(NamedTuple):
    """An argument of a checkpoint that is a variable of the function around it."""

    #: The function that gets it, and the name of its parameter.
    function: Function
    parameter: str
    value: Value
    #: The variable.
    name: str
    scope: ast.AST


def handed_in(event: Checkpointing) -> list[HandedIn]:
    """What ``event`` gives for each parameter of what it runs, by position or by a partial."""
    around = event.place.function
    if not isinstance(event, Checkpoint | DeepSpeedCheckpoint) or around is None or event.call.open_args:
        return []
    written = event.call.node.args[1:]
    if len(written) != len(event.inputs):
        return []
    found = [given for option in options(event.function) for given in _given_by_partial(option)]
    found += [
        HandedIn(target.function, parameter, value, node.id, around.node)
        for target in call_targets(event.function)
        for parameter, value, node in zip(target.parameters(), event.inputs, written, strict=False)
        if isinstance(node, ast.Name) and parameter in target.kept_parameters()
    ]
    return found


def _given_by_partial(run: Value) -> Iterator[HandedIn]:
    """The keywords of `partial(layer, sink=losses)`."""
    around = run.call.place.function if isinstance(run, Partial) else None
    if not isinstance(run, Partial) or around is None:
        return
    named = {word.arg: word.value for word in run.call.node.keywords if word.arg is not None}
    for target in call_targets(run.func):
        for name, node in named.items():
            if isinstance(node, ast.Name) and name in run.kwargs and name in target.kept_parameters():
                yield HandedIn(target.function, name, run.kwargs[name], node.id, around.node)


def stored_in_given(run: Run, event: Checkpointing, region: Region) -> Iterator[Stored]:
    """What ``region`` stores in a dict, or in an object, that ``event`` hands to it."""
    given = [it for it in handed_in(event) if isinstance(it.value, Dict | Instance)]
    inside = frozenset[ast.AST](function.node for function in region.functions)
    for write in run.writes if given else ():
        for it in given:
            if _is_it(write.obj, it) and _is_inside(write.place, inside) and leaves_graph(run, write):
                yield from _stored(run, write, it)


def _stored(run: Run, write: Write, given: HandedIn) -> Iterator[Stored]:
    match given.value:
        case Dict() if write.is_item:
            yield Stored(given.name, write.node, write.field, given.scope, _is_settled(write.place, given))
        case Instance(cls) if not write.is_item:
            others = [other.obj for other in run.writes if other.field == write.field and not _is_it(other.obj, given)]
            owners = [it.cls for it in others if isinstance(it, Instance)]
            if len(owners) == len(others) and are_one_family([cls, *owners]):
                yield Stored(write.field, write.node, is_settled=_is_settled(write.place, given))


def filled_lists(run: Run, event: Checkpointing, region: Region) -> Iterator[Stored]:
    """The lists that ``event`` hands to ``region``, which appends something with a graph to them."""
    given = [it for it in handed_in(event) if isinstance(it.value, Seq) and it.value.kind == "list"]
    for call in region.method_calls("append", "extend") if given else ():
        for it in given:
            if _is_it(call.receiver, it) and any(has_graph(run, value) for value in added_by(call)):
                yield Stored(it.name, call.node, scope=it.scope, is_settled=_is_settled(call.place, it))


def added_by(call: Call) -> list[Value]:
    """What `append` or `extend` adds to a list."""
    match call.args:
        case [Seq(items=items)] if call.method == "extend":
            return items
        case [value] if call.method == "append":
            return [value]
    return []


def _is_it(value: Value, given: HandedIn) -> bool:
    return isinstance(value, Param) and value.name == given.parameter and value.function.node is given.function.node


def _is_inside(place: Place, functions: Container[ast.AST]) -> bool:
    return place.function is not None and place.function.node in functions and is_plain(place)


def _is_settled(place: Place, given: HandedIn) -> bool:
    """Whether the conditions around ``place`` ask for nothing but whether something is given: `if sink is not None`."""
    return all(_asks_whether_given(guard, given.parameter) for guard in own_guards(place))


def _asks_whether_given(guard: Guard, parameter: str) -> bool:
    match guard.test:
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.IsNot() | ast.Is() as asked], comparators=[ast.Constant(None)]
        ):
            return name == parameter and guard.taken is isinstance(asked, ast.IsNot)
    return False
