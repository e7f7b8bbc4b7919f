"""What a checkpoint hands to its function for it to fill: `checkpoint(layer, x, losses)`, a list, a dict, an object."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import are_one_family
from ...facts.values import Dict, Function, Instance, Param, Seq, Value
from ..calls.call_targets import call_targets
from ..conditions.contexts import is_plain
from ..events import Checkpoint, DeepSpeedCheckpoint
from .stored import Stored, has_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Place
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
    """What ``event`` gives for each parameter of what it runs."""
    around = event.place.function
    if not isinstance(event, Checkpoint | DeepSpeedCheckpoint) or around is None or event.call.open_args:
        return []
    written = event.call.node.args[1:]
    if len(written) != len(event.inputs):
        return []
    return [
        HandedIn(target.function, parameter, value, node.id, around.node)
        for target in call_targets(event.function)
        for parameter, value, node in zip(target.parameters(), event.inputs, written, strict=False)
        if isinstance(node, ast.Name) and parameter in target.kept_parameters()
    ]


def stored_in_given(run: Run, event: Checkpointing, region: Region) -> Iterator[Stored]:
    """What ``region`` stores in a dict, or in an object, that ``event`` hands to it."""
    given = [it for it in handed_in(event) if isinstance(it.value, Dict | Instance)]
    inside = {function.node for function in region.functions}
    for write in run.writes if given else ():
        for it in given:
            if _is_it(write.obj, it) and _is_inside(write.place, inside) and has_graph(run, write.value):
                yield from _stored(run, write, it)


def _stored(run: Run, write: Write, given: HandedIn) -> Iterator[Stored]:
    match given.value:
        case Dict() if write.is_item:
            yield Stored(given.name, write.node, write.field, given.scope)
        case Instance(cls) if not write.is_item:
            others = [other.obj for other in run.writes if other.field == write.field and not _is_it(other.obj, given)]
            owners = [it.cls for it in others if isinstance(it, Instance)]
            if len(owners) == len(others) and are_one_family([cls, *owners]):
                yield Stored(write.field, write.node)


def filled_lists(run: Run, event: Checkpointing, region: Region) -> Iterator[Stored]:
    """The lists that ``event`` hands to ``region``, which appends something with a graph to them."""
    given = [it for it in handed_in(event) if isinstance(it.value, Seq) and it.value.kind == "list"]
    for call in region.method_calls("append") if given else ():
        for it in given:
            if _is_it(call.receiver, it) and len(call.args) == 1 and has_graph(run, call.args[0]):
                yield Stored(it.name, call.node, scope=it.scope)


def _is_it(value: Value, given: HandedIn) -> bool:
    return isinstance(value, Param) and value.name == given.parameter and value.function.node is given.function.node


def _is_inside(place: Place, functions: set[ast.AST]) -> bool:
    return place.function is not None and place.function.node in functions and is_plain(place)
