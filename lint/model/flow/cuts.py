"""Where tensors are cut off from the graph: `x.detach()`, or a call of a function that does no more: `boundary(x)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import is_run_as_written
from ...facts.parameters import positional_names
from ...facts.straight import only_value
from ...facts.values import Method
from ..events import Detach
from .own_results import receiver_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Place, Value
    from ..history import History

#: Methods that give the tensor itself, or a copy, to whoever asked for a detached one.
_PLAIN = frozenset(("requires_grad_", "clone", "contiguous", "to", "float"))


class Cut(NamedTuple):
    """A tensor that is cut off."""

    #: What stands in the function that cuts it off, or has a function of its own for that.
    call: Call
    source: Value
    #: The variable with the tensor; empty for anything else.
    name: str

    @property
    def node(self) -> ast.Call:
        """The call as it is written."""
        return self.call.node

    @property
    def place(self) -> Place:
        """Where it is."""
        return self.call.place

    @property
    def order(self) -> int:
        """When it happens."""
        return self.call.order


def cuts(run: History) -> Iterator[Cut]:
    """Every cut of the run, where the program asks for it."""
    for event in run.of(Detach):
        asked = _asked_for(run, event.call)
        yield asked._replace(source=event.source) if asked is not None else _itself(event)


def _itself(event: Detach) -> Cut:
    return Cut(event.call, event.source, receiver_name(event.call))


def _asked_for(run: History, cut: Call) -> Cut | None:
    """The call of the function that does nothing but ``cut`` of its parameter; None for any other."""
    path, function = run.path_to(cut), cut.place.function
    if len(path) < 2 or function is None or not is_run_as_written(function):
        return None
    if _without_marks(only_value(function.node)) is not cut.node:
        return None
    caller = path[-2]
    names = positional_names(function.node)[isinstance(caller.func, Method) :]
    given = caller.written_arguments(names).get(receiver_name(cut))
    return Cut(caller, cut.receiver, given.id if isinstance(given, ast.Name) else "") if given is not None else None


def _without_marks(value: ast.expr | None) -> ast.expr | None:
    """The call of `x.detach()` in `x.detach().requires_grad_()`."""
    while True:
        match value:
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in _PLAIN:
                value = inner
            case _:
                return value
