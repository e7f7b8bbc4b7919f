"""The bodies that run inside functions and modules of one program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.parameters import positional_names
from ...facts.values import Choice, Function, Instance, Method, Param, Partial, Seq, Value, options
from ..calls.forward_hooks import registered_in
from ..events.library_checkpoints import DeepSpeedCheckpoint
from ..names import canonical
from ..wrapping.check_functions import classes_asked, classes_compared, policy_classes
from ..wrapping.named_checks import names_asked
from .given_parameters import GivenParameters
from .search import Search, identity

if TYPE_CHECKING:
    import ast

    from ...facts.values import Call
    from ...facts.walk import Program
    from ..events.checkpoints import FunctionCheckpoint
    from .region import Region

#: Functions whose first argument runs again, with the others.
_CHECKPOINTS = frozenset(("torch.utils.checkpoint.checkpoint", *DeepSpeedCheckpoint.NAMES))


class Regions:
    """Finds regions in one program; the search of a body is done once."""

    __slots__ = ("_by_way", "_calls", "_checkpointed", "_known", "changed", "classes", "hooks")

    def __init__(self, program: Program) -> None:
        self.classes = program.classes
        #: The attributes that something else than a constructor sets.
        self.changed = frozenset(
            write.field
            for write in program.writes
            if write.place.function is None or write.place.function.name != "__init__"
        )
        #: What registers hooks on modules for good.
        self.hooks = registered_in(program)
        self._known: dict[tuple[int, ...], tuple[Value, Region]] = {}
        self._calls: dict[Function | ast.AST, list[Call]] = {}
        #: The calls by the way to them: the walk, and the calls that were followed.
        self._by_way: dict[tuple[int, tuple[ast.Call, ...]], list[Call]] = {}
        #: The checkpoints of each function of the file, with how many of its parameters are taken already.
        self._checkpointed: dict[ast.AST, list[tuple[Call, int]]] = {}
        for call in program.calls:
            self._note_checkpoint(call)
            function = call.place.function
            if function is not None:
                self._by_way.setdefault((call.place.walk, call.place.stack), []).append(call)
                self._calls.setdefault(function, []).append(call)
                self._calls.setdefault(function.node, []).append(call)

    def _note_checkpoint(self, call: Call) -> None:
        if canonical(call.name) not in _CHECKPOINTS:
            return
        match call.args:
            case [Function() as function, *_]:
                self._checkpointed.setdefault(function.node, []).append((call, 0))
            case [Method(_, function), *_]:
                self._checkpointed.setdefault(function.node, []).append((call, 1))

    def given_for(self, param: Param) -> list[Value]:
        """What the checkpoints of the function of ``param`` give for it."""
        names = positional_names(param.function.node)
        found = []
        for call, taken in self._checkpointed.get(param.function.node, ()):
            position = names.index(param.name) - taken + 1 if param.name in names else 0
            if 0 < position < len(call.args):
                found.append(call.args[position])
        return found

    def calls_in(self, function: Function, by: Call | None = None) -> list[Call]:
        """The calls in the body of ``function``, nested functions excluded; as walked for ``by`` where it was.

        Those of another function that the same text defined only when this one was not walked itself.
        """
        for_it = self._by_way.get(_way_of(by), ()) if by is not None else ()
        own = [call for call in for_it if call.place.function is not None and call.place.function.node is function.node]
        return own or self._calls.get(function if function.walked else function.node, [])

    def walked_for(self, call: Call) -> bool:
        """Whether the body of a function was walked for this very call."""
        return _way_of(call) in self._by_way

    def of(self, *entered: Value) -> Region:
        """What runs when ``entered`` (functions, modules, or containers of them) is called."""
        known = self._known.get(identity(entered[0])) if len(entered) == 1 else None
        if known is not None:
            return known[1]
        region = Search(self).run(entered)
        if len(entered) == 1:
            self._known[identity(entered[0])] = (entered[0], region)
        return region

    def run_by(self, checkpoint: FunctionCheckpoint) -> Region:
        """What a checkpoint runs again: a function with what this one gives it, not with what others do."""
        given = GivenParameters(checkpoint.function, checkpoint.inputs, checkpoint.function_kwargs)
        if not given:
            return self.of(checkpoint.function)
        key = (id(checkpoint.call), *identity(checkpoint.function))
        if key not in self._known:
            self._known[key] = checkpoint.function, Search(self, given).run([checkpoint.function])
        return self._known[key][1]


def _way_of(call: Call) -> tuple[int, tuple[ast.Call, ...]]:
    """The way to the calls of the body that ``call`` runs."""
    return call.place.walk, (*call.place.stack, call.node)


def _asks_kind(call: Call) -> bool:
    return call.name == "builtins.isinstance" and len(call.args) == 2


def classes_checked(check: Value, regions: Regions) -> list[Value]:
    """The classes a ``check_fn`` accepts by ``isinstance``, or by what it compares the class of a module with.

    A policy of FSDP may stand in its place.
    """
    found: list[Value] = []
    for function in options(check):
        found += policy_classes(function) or ()
        named = names_asked(function)
        names = named.exact if named is not None else ()
        found += (cls for cls in regions.classes if cls.name in names)
        given = function if isinstance(function, Partial) else None
        function = given.func if given is not None else function
        function = function.cls.body.get("__call__", function) if isinstance(function, Instance) else function
        if isinstance(function, Function):
            asked = [call.args[1] for call in regions.calls_in(function) if _asks_kind(call)]
            asked = [_given(given, kinds) for kinds in asked] if given is not None else asked
            for kinds in asked:
                found += kinds.items if isinstance(kinds, Seq) else [kinds]
            # The body of a function of another module is walked only where the run calls it; in a loop each of several
            # is asked for, in a condition one of them.
            is_known = asked and not any(isinstance(kinds, Choice) for kinds in asked)
            found += [] if is_known else classes_asked(function)
            found += classes_compared(function)
    return found


def _given(partial: Partial, value: Value) -> Value:
    """What ``partial`` gives for ``value``, where that is a parameter of its function; ``value`` itself otherwise."""
    if not isinstance(value, Param) or value.function is not partial.func:
        return value
    names = positional_names(value.function.node)
    index = names.index(value.name) if value.name in names else len(partial.args)
    return partial.args[index] if index < len(partial.args) else partial.kwargs.get(value.name, value)
