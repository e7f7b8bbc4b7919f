"""What a call that runs a function again gives for the parameters of that function."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.parameters import positional_names
from ...facts.scopes import bound_names
from ...facts.values import ABSENT, UNKNOWN, Attr, Function, Method, Param, Partial, Value, join, options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...facts.values import Call


class GivenParameters:
    """What one checkpoint gives for the parameters of what it runs.

    Args:
        entered: What it runs.
        args: The positional arguments for that.
        kwargs: The keyword arguments for that.
    """

    __slots__ = ("_by_function",)

    def __init__(self, entered: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> None:
        self._by_function: dict[ast.AST, list[dict[str, Value]]] = {}
        self._note(entered, list(args), dict(kwargs), 0)

    def _note(self, entered: Value, args: list[Value], kwargs: dict[str, Value], taken: int) -> None:
        for option in options(entered):
            match option:
                case Function():
                    names = positional_names(option.node)[taken:]
                    given = {**dict(zip(names, args, strict=False)), **kwargs}
                    self._by_function.setdefault(option.node, []).append(given)
                case Method(_, function):
                    self._note(function, args, kwargs, 1)
                case Partial(func=inner, args=first, kwargs=named):
                    # Behind an unknown `*args` nobody knows which parameter is which.
                    known = [] if option.open_args else args
                    self._note(inner, [*first, *known], {**named, **kwargs}, taken)

    def knows(self, function: Function) -> bool:
        """Whether the checkpoint runs ``function`` itself."""
        return function.node in self._by_function

    def values_of(self, param: Param) -> list[Value]:
        """What is given for ``param``, by each way in which the checkpoint runs its function."""
        ways = self._by_function.get(param.function.node, ())
        given = (way.get(param.name, param.default or UNKNOWN) for way in ways)
        return [value for value in given if value is not UNKNOWN]

    def _called_anew(self, call: Call) -> list[Value]:
        """What ``call`` calls where that is a parameter of the function, which was walked for another caller."""
        function, written = call.place.function, call.node.func
        if function is None or not isinstance(written, ast.Name):
            return []
        ways = self._by_function.get(function.node, ())
        given = [way[written.id] for way in ways if way.get(written.id, UNKNOWN) is not UNKNOWN]
        return [] if given and written.id in bound_names(function.node) else given

    def called_by(self, call: Call) -> Value:
        """What ``call``, in the body of the function, calls: for a parameter what is given, or bound early, for it."""
        known = self.meant(call, call.func, lambda param: [param.default or call.func])
        return join(*known) if known else call.func

    def meant(self, call: Call, called: Value, of_others: Callable[[Param], list[Value]]) -> list[Value]:
        """What ``call`` calls.

        Args:
            call: The call, inside of what the checkpoint runs.
            called: What stands there.
            of_others: What is given for a parameter of a function that the checkpoint does not run itself.
        """
        param = called_parameter(called)
        if param is None:
            return self._called_anew(call) or [called]
        return self.values_of(param) if self.knows(param.function) else of_others(param)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self._by_function)


#: Nothing that has parameters is run.
NOTHING_GIVEN = GivenParameters(ABSENT, (), {})


def called_parameter(called: Value) -> Param | None:
    """The parameter that is called: as `module(x)`, or `module.forward(x)`."""
    match called:
        case Param():
            return called
        case Attr(base=Param() as param, name="forward" | "__call__"):
            return param
    return None
