"""What the program gives to a checkpoint: batches of data, which carry no gradient, or what layers computed."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from ...facts.exclusion import conjuncts
from ...facts.values import Choice, Const, Element, Function, Param, Result, Value, options
from ..conditions.guards import own_guards
from ..names import canonical
from ..types import unwrapped
from .call_targets import call_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call
    from ...facts.walk import Program
    from ..events import Checkpoint
    from .region import Region, Regions

#: Methods that give a batch on another device or in another type.
_MOVES = frozenset(
    (
        *("to", "cuda", "cpu", "float", "half", "bfloat16", "contiguous"),
        *("squeeze", "unsqueeze", "permute", "transpose", "view", "reshape", "flatten"),
    )
)
#: Channels of pictures and of spectrograms: a layer that takes so many is the first one.
_COLOURS, _GREY = 3, 1


def needs_gradient_of_data(program: Program, regions: Regions, event: Checkpoint) -> bool | None:
    """Whether the checkpoint is taken only when a batch of data requires a gradient: `if images.requires_grad`.

    None where only the layers look like it: what a model's `forward` gets may come from another model.
    """
    function = event.place.function
    asked = {name for guard in own_guards(event.place) for name in _asked(guard.test, guard.taken)}
    if function is None or not asked:
        return False
    given = [value for name in asked for value in _given(program, function, name)]
    answer = bool(given) and _are_data(program, given)
    return None if answer is False and _takes_pictures(regions.of(event.function)) else answer


def _asked(test: ast.AST, taken: bool) -> Iterator[str]:
    """The names whose `requires_grad` must be true."""
    if not any(holds and "requires_grad" in said for said, holds in conjuncts(test, taken)):
        return
    for node in ast.walk(test):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="requires_grad"):
                yield name


def _given(program: Program, function: Function, name: str) -> Iterator[Value]:
    """What the calls of the program that lead to ``function`` give for its parameter ``name``."""
    for call in program.calls:
        for part in call_targets(unwrapped(call.func)):
            if part.function.node is function.node and name in part.parameters():
                yield call.argument(part.parameters().index(name), name)


def _are_data(program: Program, values: Iterable[Value], through: tuple[Param, ...] = ()) -> bool | None:
    found = {_is_data(program, value, through) for value in values}
    return False if False in found else None if None in found else True


def _is_data(program: Program, value: Value, through: tuple[Param, ...]) -> bool | None:
    """Whether ``value`` is an element of what a training loop goes through; None for what a whole model may get.

    ``through`` has the parameters that it was handed on through.
    """
    match value:
        case Choice():
            return _are_data(program, options(value), through)
        case Result(call) if call.method in _MOVES:
            return _is_data(program, call.receiver, through)
        case Element(of=Element() as inner):
            return _is_data(program, inner, through)
        case Element(of=of) if not _is_input(of):
            return isinstance(of, Param | Result)
        case Param() | Element(of=Param()):
            parameter = value if isinstance(value, Param) else value.of
            return _is_input(parameter) and parameter not in through and _is_given_data(program, parameter, through)
    return False


def _is_input(value: Value) -> TypeGuard[Param]:
    return isinstance(value, Param) and value.function.name == "forward"


def _is_given_data(program: Program, parameter: Param, through: tuple[Param, ...]) -> bool | None:
    """Whether the calls that the program shows give data for ``parameter``; None where it shows none."""
    given = list(_given(program, parameter.function, parameter.name))
    return _are_data(program, given, (*through, parameter)) if given else None


def _takes_pictures(region: Region) -> bool:
    """Whether a layer of the region takes the colours of a picture, or the first one as many channels as raw data."""
    layers = [module.call for module in region.modules if isinstance(module, Result)]
    convolutions = [call for call in layers if "Conv" in canonical(call.name)]
    if any(_channels(call) == _COLOURS for call in convolutions):
        return True
    return bool(convolutions) and convolutions[0] is layers[0] and _channels(layers[0]) == _GREY


def _channels(call: Call) -> object:
    """How many channels a layer takes; for a parameter, unless somebody gives another number."""
    channels = call.argument(0, "in_channels")
    if isinstance(channels, Param):
        channels = channels.default or channels
    return channels.value if isinstance(channels, Const) else None
