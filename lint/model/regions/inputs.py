"""What the program gives to a checkpoint: batches of data, which carry no gradient, or what layers computed."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeGuard

from ...facts.exclusion import conjuncts
from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes
from ...facts.values import Choice, Const, Element, Function, Instance, Param, Result, Value, options
from ..calls.call_targets import call_targets
from ..conditions.guards import own_guards, own_loops
from ..names import canonical
from ..tensors.tensor_methods import MOVES, SHAPES
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Loop
    from ..events import Checkpoint
    from ..history import History
    from .region import Region

#: Methods that give a batch on another device or in another type.
_MOVES = MOVES | SHAPES
#: Channels of pictures and of spectrograms: a layer that takes so many is the first one.
_COLOURS, _GREY = 3, 1


class Inputs:
    """What the calls of a program give to the checkpoints in its functions."""

    __slots__ = ("_answers", "_callers", "_run")

    def __init__(self, run: History) -> None:
        self._run = run
        self._answers: dict[Checkpoint, bool | None] = {}
        self._callers: dict[ast.AST, list[tuple[Call, list[str]]]] | None = None

    def needs_gradient_of_data(self, event: Checkpoint) -> bool | None:
        """Whether the checkpoint is taken only when a batch of data requires a gradient: `if images.requires_grad`.

        None where only the layers look like it: what a model's `forward` gets may come from another model.
        """
        if event not in self._answers:
            self._answers[event] = self._asks_data(event)
        return self._answers[event]

    def _asks_data(self, event: Checkpoint) -> bool | None:
        function = event.place.function
        asked = {name for guard in own_guards(event.place) for name in _asked(guard.test, guard.taken)}
        asked -= {name for loop in own_loops(event.place) for name in _given_back(loop, event)}
        if function is None or not asked:
            return False
        given = [value for name in asked for value in self._given(function, name)]
        if given and all(_is_input(value) and value.function.owner is function.owner for value in given):
            # `forward` hands what it gets to another method of its class.
            given = [
                outer
                for value in given
                if isinstance(value, Param)
                for outer in self._given(value.function, value.name)
            ]
        answer = bool(given) and self._are_data(given)
        return None if answer is False and self._takes_pictures(self._run.bodies.of(event.function)) else answer

    def _given(self, function: Function, name: str) -> list[Value]:
        """What the calls of the program that lead to ``function`` give for its parameter ``name``."""
        if self._callers is None:
            self._callers = {}
            for call in self._run.program.calls:
                for part in call_targets(unwrapped(call.func)):
                    self._callers.setdefault(part.function.node, []).append((call, part.parameters()))
        found = self._callers.get(function.node, [])
        return [call.argument(names.index(name), name) for call, names in found if name in names]

    def _are_data(self, values: list[Value]) -> bool | None:
        """Whether all come from what a training loop goes through; None where a whole model may be given them."""
        seen, found, left = set[tuple[ast.AST, str]](), set[bool | None](), list(values)
        while left and False not in found:
            match left.pop():
                case Choice() as value:
                    left += options(value)
                case Result(call) if call.method in _MOVES:
                    left.append(call.receiver)
                case Element(of=Element() as inner):
                    left.append(inner)
                case Param() | Element(of=Param()) as value if _is_input(parameter := _whole(value)):
                    if (key := (parameter.function.node, parameter.name)) not in seen:
                        seen.add(key)
                        given = self._given(parameter.function, parameter.name)
                        left += given
                        found |= set() if given else {None}
                case Element(of=Result(call), index=index) if index is not None and call.name != "builtins.next":
                    found.add(False)  # `x, shape = embed(x)` takes apart what a layer gives.
                case Element(of=of):
                    found.add(isinstance(of, Param | Result))
                case _:
                    found.add(False)
        return False if False in found else None if None in found or not found else True

    def _takes_pictures(self, region: Region) -> bool:
        """Whether a layer takes the colours of a picture, or the first one as many channels as raw data."""
        layers = [module.call for module in region.modules if isinstance(module, Result)]
        convolutions = [call for call in layers if "Conv" in canonical(call.name)]
        objects = {module.call.node for module in region.modules if isinstance(module, Instance) and module.call}
        if any(_channels(way) == _COLOURS for call in convolutions for way in self._made_in(objects, call)):
            return True
        return bool(convolutions) and convolutions[0] is layers[0] and _channels(layers[0]) == _GREY

    def _made_in(self, objects: set[ast.Call], layer: Call) -> list[Call]:
        """The evaluations of ``layer`` in the constructors of ``objects``: others of their class take other numbers."""
        ways = self._run.calls_at(layer.node)
        return [way for way in ways if not objects.isdisjoint(way.place.stack)] or [layer]


def _given_back(loop: Loop, event: Checkpoint) -> Iterator[str]:
    """The names that the next iteration of ``loop`` finds what the checkpoint gave in: `x = checkpoint(layer, x)`."""
    own = frozenset[str]() if isinstance(loop, ast.While) else names_in(loop.target)
    for node in all_nodes(loop):
        if isinstance(node, ast.Assign) and any(part is event.node for part in ast.walk(node.value)):
            yield from {name for target in node.targets for name in names_in(target)} - own


def _whole(value: Value) -> Value:
    return value.of if isinstance(value, Element) else value


def _asked(test: ast.AST, taken: bool) -> Iterator[str]:
    """The names whose `requires_grad` must be true."""
    if not any(holds and "requires_grad" in said for said, holds in conjuncts(test, taken)):
        return
    for node in ast.walk(test):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="requires_grad"):
                yield name


def _is_input(value: Value) -> TypeGuard[Param]:
    return isinstance(value, Param) and value.function.name == "forward"


def _channels(call: Call) -> object:
    """How many channels a layer takes; for a parameter, unless somebody gives another number."""
    channels = call.argument(0, "in_channels")
    if isinstance(channels, Param):
        channels = channels.default or channels
    return channels.value if isinstance(channels, Const) else None
