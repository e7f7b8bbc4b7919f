"""The functions whose body a call comes to first: of a function, a method, a module, a partial."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import ancestors
from ...facts.parameters import positional_names
from ...facts.scopes import bound_names
from ...facts.values import Attr, Function, Instance, Method, Partial, Value, options

if TYPE_CHECKING:
    from collections.abc import Iterator


class CallTarget(NamedTuple):
    """A function that is run, and which of its parameters are taken already."""

    function: Function
    #: How many of the positional ones.
    taken: int
    #: Those that a partial gives by keyword.
    named: frozenset[str] = frozenset()
    #: Whether a partial may give more: `partial(f, *args, **options)`.
    is_open: bool = False

    def parameters(self) -> list[str]:
        """The names of the positional parameters that the call fills, in order."""
        return positional_names(self.function.node)[self.taken :]

    def kept_parameters(self) -> frozenset[str]:
        """Those that mean what the call gives for as long as the function runs."""
        return frozenset(self.parameters()) - frozenset(bound_names(self.function.node))


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
                    yield _given_by(option, found)
            case Attr(base=inner, name="forward" | "__call__"):
                yield from call_targets(inner)
            case Instance(cls):
                owners = (cls, *ancestors(cls))
                bodies = (owner.body.get("forward") or owner.body.get("__call__") for owner in owners)
                forward = next((body for body in bodies if body is not None), None)
                if isinstance(forward, Function):
                    yield CallTarget(forward, 1)


def _given_by(partial: Partial, target: CallTarget) -> CallTarget:
    """``target`` with what ``partial`` gives it."""
    return CallTarget(
        target.function,
        target.taken + len(partial.args),
        target.named.union(partial.kwargs),
        target.is_open or bool(partial.open_args or partial.open_kwargs),
    )
