"""The inside of a checkpointed region, as far as the program shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...facts.values import Attr, Element, Function, Instance, Result, Value
from ..names import canonical

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Mapping

    from ...facts.values import Call, Guard

    #: What tells the parts of a region from each other.
    PartKey: TypeAlias = tuple[ast.AST | None, str]


class Region(NamedTuple):
    """The inside of a checkpoint, as far as this file shows it."""

    #: Functions of the file whose bodies run again.
    functions: tuple[Function, ...]
    #: Modules that run again: objects of the file's classes and of imported ones.
    modules: tuple[Value, ...]
    #: The calls made inside, one for each expression.
    calls: tuple[Call, ...]
    #: The conditions under which the region comes to its modules and calls.
    conditions: Mapping[PartKey, tuple[Guard, ...]]

    def conditions_of(self, part: Value | Call) -> tuple[Guard, ...]:
        """The conditions under which the region comes to ``part``, one of its modules or calls."""
        return self.conditions.get(part_key(part), ())

    def makes_call(self, node: ast.Call) -> bool:
        """Whether the call that ``node`` writes is made inside."""
        return (node, "") in self.conditions

    def makes(self, module: Result) -> bool:
        """Whether the region itself builds ``module``, anew in each run."""
        maker = module.call.place.function
        return maker is not None and any(function.node is maker.node for function in self.functions)

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


def part_key(part: Value | Call) -> PartKey:
    """What is one part of a region: all objects of a class, what one expression makes, a part of that, a call."""
    match part:
        case Instance(cls):
            return cls.node, ""
        case Result(call):
            return call.node, f"{call.name}()"
        case Attr(base=Result(call), name=name):
            return call.node, f"{call.name}().{name}"
        case Element(of=Attr() as whole):
            return part.node, part_key(whole)[1]
    return part.node, ""
