"""What runs again in a checkpointed region: its functions and modules, through classes, containers and closures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..facts.classes import ancestors
from ..facts.containers import container_kind, given_to, held_by, is_module_list
from ..facts.values import (
    Attr,
    Choice,
    Class,
    Element,
    Function,
    Instance,
    Method,
    Partial,
    Ref,
    Result,
    Seq,
    Value,
    options,
)
from .names import canonical
from .types import PASS_THROUGH

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

    from ..facts.calls import Call
    from ..facts.walk import Program


class Region(NamedTuple):
    """The inside of a checkpoint, as far as this file shows it."""

    #: Functions of the file whose bodies run again.
    functions: tuple[Function, ...]
    #: Modules that run again: objects of the file's classes and of imported ones.
    modules: tuple[Value, ...]
    #: The calls made inside, one for each expression.
    calls: tuple[Call, ...]
    #: False when something runs in there that the file does not show.
    complete: bool

    def modules_of(self, *names: str) -> Iterator[Result]:
        """The modules that calls of these imported names built (``torch.nn.BatchNorm1d``)."""
        for module in self.modules:
            if isinstance(module, Result) and canonical(module.call.name) in names:
                yield module

    def calls_to(self, *names: str) -> Iterator[Call]:
        """The calls of imported functions by canonical name."""
        return (call for call in self.calls if call.name and canonical(call.name) in names)

    def method_calls(self, *names: str) -> Iterator[Call]:
        """The calls of methods of these names, whatever the object."""
        return (call for call in self.calls if call.method in names)


class Regions:
    """Finds regions in one program; the search of a body is done once."""

    __slots__ = ("_calls", "_known")

    def __init__(self, program: Program) -> None:
        self._known: dict[int, tuple[Value, Region]] = {}
        self._calls: dict[ast.AST, list[Call]] = {}
        for call in program.calls:
            if call.place.function is not None:
                self._calls.setdefault(call.place.function.node, []).append(call)

    def calls_in(self, function: Function) -> list[Call]:
        """The calls in the body of ``function``, nested functions excluded."""
        return self._calls.get(function.node, [])

    def of(self, *entered: Value) -> Region:
        """What runs when ``entered`` (functions, modules, or containers of them) is called."""
        if len(entered) == 1 and id(entered[0]) in self._known:
            return self._known[id(entered[0])][1]
        region = _Search(self).run(entered)
        if len(entered) == 1:
            self._known[id(entered[0])] = (entered[0], region)
        return region


class _Search:
    """One search from what is called into everything it calls."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self.functions: dict[ast.AST, Function] = {}
        self.modules: dict[int, Value] = {}
        self.calls: dict[ast.AST, Call] = {}
        self.complete = True

    def run(self, entered: Iterable[Value]) -> Region:
        queue = list(entered)
        # A list may contain itself. Values are kept, so that no other one gets the identity of one that is gone.
        seen: dict[int, Value] = {}
        while queue:
            value = queue.pop(0)
            if id(value) not in seen:
                seen[id(value)] = value
                queue += self._enter(value)
        found = tuple(self.functions.values()), tuple(self.modules.values()), tuple(self.calls.values())
        return Region(*found, self.complete)

    def _enter(self, value: Value) -> Iterable[Value]:
        match value:
            case Choice(alternatives):
                return alternatives
            case Function():
                return self._enter_function(value)
            case Method(_, function) | Partial(func=Function() as function):
                return self._enter_function(function)
            case Partial(func=inner) | Attr(base=inner, name="forward" | "__call__"):
                return [inner]
            case Instance(cls):
                return self._enter_instance(value, cls)
            case Result(call):
                return self._enter_result(value, call)
            case Seq(_, items):
                self.complete = self.complete and not value.open
                return items
            case Class() | Ref():
                return []
        self.complete = False
        return []

    def _enter_function(self, function: Function) -> list[Value]:
        if function.node in self.functions:
            return []
        self.functions[function.node] = function
        calls = self.regions.calls_in(function)
        self.calls |= {call.node: call for call in calls}
        return [call.func for call in calls if _is_followed(call)]

    def _enter_instance(self, instance: Instance, cls: Class) -> list[Value]:
        if id(cls) in self.modules:
            return []
        self.modules[id(cls)] = instance
        for owner in (cls, *ancestors(cls)):
            forward = owner.body.get("forward") or owner.body.get("__call__")
            if forward is not None:
                return [forward]
        self.complete = False
        return held_by(instance) if container_kind(instance) == "Sequential" else []

    def _enter_result(self, result: Result, call: Call) -> list[Value]:
        if id(call.node) in self.modules:
            return []
        name = canonical(call.name)
        if is_module_list(result):
            self.complete = self.complete and not call.open_args and not any(map(_is_open, call.args))
            return given_to(call)
        if name in PASS_THROUGH and call.args:
            return call.args[:1]
        self.modules[id(call.node)] = result
        if not name.startswith("torch.nn."):
            self.complete = False
        return []


def _is_open(value: Value) -> bool:
    return isinstance(value, Seq) and value.open


def _is_followed(call: Call) -> bool:
    """Whether the inside of what is called belongs to the region and can be looked for."""
    return any(isinstance(option, Function | Method | Instance | Result | Element) for option in options(call.func))


def classes_checked(check: Value, regions: Regions) -> list[Value]:
    """The classes a ``check_fn`` accepts by ``isinstance``."""
    found: list[Value] = []
    for function in options(check):
        if isinstance(function, Partial):
            function = function.func
        if isinstance(function, Function):
            for call in regions.calls_in(function):
                if call.name == "builtins.isinstance" and len(call.args) == 2:
                    kinds = call.args[1]
                    found += kinds.items if isinstance(kinds, Seq) else [kinds]
    return found
