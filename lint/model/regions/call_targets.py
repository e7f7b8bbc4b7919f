"""The functions whose body a call comes to first: of a function, a method, a module, a partial."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import ancestors
from ...facts.values import Attr, Function, Instance, Method, Partial, Value, options

if TYPE_CHECKING:
    from collections.abc import Iterator


class CallTarget(NamedTuple):
    """A function that is run and how many of its positional parameters are taken already."""

    function: Function
    taken: int

    def parameters(self) -> list[str]:
        """The names of the positional parameters that the call fills, in order."""
        arguments = self.function.node.args
        return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][self.taken :]


def call_targets(value: Value) -> Iterator[CallTarget]:
    """What calling ``value`` runs, as far as the file shows it."""
    for option in options(value):
        match option:
            case Function():
                yield CallTarget(option, 0)
            case Method(_, function):
                yield CallTarget(function, 1)
            case Partial(func=inner):
                for found in call_targets(inner):
                    yield CallTarget(found.function, found.taken + len(option.args))
            case Attr(base=inner, name="forward" | "__call__"):
                yield from call_targets(inner)
            case Instance(cls):
                bodies = (owner.body.get("forward") for owner in (cls, *ancestors(cls)))
                forward = next((body for body in bodies if body is not None), None)
                if isinstance(forward, Function):
                    yield CallTarget(forward, 1)
