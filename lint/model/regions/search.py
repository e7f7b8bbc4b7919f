"""The search for what runs again: from what is called through classes, containers and closures, call by call."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ...facts.objects.attributes import made_at
from ...facts.objects.classes import ancestors
from ...facts.objects.containers import container_kind, given_to, held_by, is_module_list, parts_passed
from ...facts.values import (
    Attr,
    Choice,
    Class,
    Element,
    Function,
    Instance,
    Method,
    Partial,
    Result,
    Seq,
    Super,
    Value,
    conditional_options,
    either,
    options,
)
from ..calls.called_by_libraries import called_by_libraries
from ..calls.forward_hooks import hooks_on
from ..calls.given import asked_of_self, holds_for, of_object
from ..conditions.guards import own_guards
from ..known_models.held_norms import built_with_batch_norm
from ..known_models.torch_modules import given_to_hold
from ..names import canonical
from ..types import unwrapped
from .given_parameters import NOTHING_GIVEN, GivenParameters
from .region import Region, part_key

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

    from ...facts.values import Call, Guard, Param, Place
    from ..calls.forward_hooks import Registration
    from .region import PartKey

    _Identity: TypeAlias = tuple[int, ...]
    #: How many conditions there are, a number, what is entered, and the identity of what it is entered from.
    _Queued: TypeAlias = tuple[int, int, "_Entry", _Identity | None]


#: Functions that call the module they are given, with other parameters.
_CALLING = frozenset(("torch.func.functional_call", "torch.nn.utils.stateless.functional_call"))


class _Entry(NamedTuple):
    """Something to enter."""

    value: Value
    #: The conditions it is entered under, those of what leads to it left out.
    under: tuple[Guard, ...] = ()
    #: The call that runs it, where its body may have been walked for that.
    by: Call | None = None


class Bodies(Protocol):
    """What a search asks about the program."""

    changed: frozenset[str]
    classes: list[Class]
    hooks: list[Registration]

    def calls_in(self, function: Function, by: Call | None = None) -> list[Call]:
        """The calls in the body of ``function``, as walked for ``by`` where it was."""

    def walked_for(self, call: Call) -> bool:
        """Whether the body of a function was walked for this very call."""

    def given_for(self, param: Param) -> list[Value]:
        """What the checkpoints of the function of ``param`` give for it."""


class Search:
    """One search from what is called into everything it calls."""

    def __init__(self, regions: Bodies, given: GivenParameters = NOTHING_GIVEN) -> None:
        self.regions = regions
        self.given = given
        self.functions: dict[Function, Function] = {}
        self.modules: dict[PartKey, Value] = {}
        self.calls: dict[ast.AST, Call] = {}
        self.conditions: dict[PartKey, tuple[Guard, ...]] = {}
        #: The functions that were entered, each with the walk of its body.
        self._entered: set[tuple[Function, int]] = set()
        #: The conditions around what is entered now, and the call that runs it.
        self._under: tuple[Guard, ...] = ()
        self._by: Call | None = None

    def run(self, entered: Iterable[Value]) -> Region:
        """Enter each of ``entered`` and what it calls, and give all that was found."""
        counter = count()
        # What is under the fewest conditions comes first, so that each part gets the weakest it is under.
        queue: list[_Queued] = [(0, next(counter), _Entry(value), None) for value in entered]
        # A list may contain itself. Values are kept, so that no other one gets the identity of one that is gone.
        seen: dict[_Identity, Value] = {}
        # What both branches of a condition enter is under none by the time that its inside is looked at.
        weakest: dict[_Identity | None, tuple[Guard, ...]] = {None: ()}
        while queue:
            _, _, entry, outer = heappop(queue)
            value, self._under, self._by = entry.value, (*weakest[outer], *entry.under), entry.by
            # What the program's own code runs is told apart by the walk of that.
            key = identity(value) if isinstance(value, Result | Seq | Element) else (*identity(value), self._walk())
            if key not in seen:
                seen[key], weakest[key] = value, self._under
                for inner in self._enter(value):
                    heappush(queue, (len(self._under) + len(inner.under), next(counter), inner, key))
                continue
            weakest[key] = _weaker(weakest[key], self._under)
            if part_key(value) in self.modules:
                self._came_to(value, self._under)
        found = tuple(self.functions.values()), tuple(self.modules.values()), tuple(self.calls.values())
        return Region(*found, self.conditions)

    def _walk(self) -> int:
        """What tells the walk of a body that was made for the present call; 0 where none was."""
        return id(self._by) if self._by is not None and self.regions.walked_for(self._by) else 0

    def _enter(self, value: Value) -> Iterable[_Entry]:
        match value:
            case Choice():
                return [_Entry(option, under, self._by) for option, under in conditional_options(value)]
            case Function():
                return self._enter_function(value)
            case Method(Instance() as instance, function):
                return self._enter_function(function, instance)
            case Method(_, function) | Partial(func=Function() as function):
                return self._enter_function(function)
            case Attr(base=Super(cls=base), name="__call__"):
                heirs = (cls for cls in self.regions.classes if base in ancestors(cls))
                return [_Entry(cls.instance, (), self._by) for cls in heirs]
            case Partial(func=inner) | Attr(base=inner, name="forward" | "__call__"):
                return [_Entry(inner, (), self._by)]
            case Instance(cls):
                return [*self._hooks_of(value), *self._enter_instance(value, cls)]
            case Result(call):
                return [*self._hooks_of(value), *self._enter_result(value, call)]
            case Seq(_, items):
                return _always(items)
            case Attr() | Element() if (inner := unwrapped(value)) is not value:
                return [_Entry(inner, (), self._by)]
            case Element() if passed := parts_passed(value):
                return [_Entry(part, under) for part, under in passed]
            case Attr() | Element() if built_with_batch_norm(value) is not None:
                self._came_to(value, self._under)
                self.modules.setdefault(part_key(value), value)
        return []

    def _enter_function(self, function: Function, instance: Instance | None = None) -> list[_Entry]:
        """Enter ``function``, a method of ``instance``: what the object was given is its own, not that of its class."""
        # A method that is called as a plain function was walked without knowing its object.
        by = None if function.owner is not None and instance is None else self._by
        calls = self.regions.calls_in(function, by)
        if (function, self._walk()) in self._entered:
            calls = [call for call in calls if instance is not None and asked_of_self(call) is not None]
        self._entered.add((function, self._walk()))
        self.functions[function] = function
        # What decorators put around it runs with it.
        called = [_Entry(wrapper) for wrapper in function.around]
        # A function that is chosen by a condition is the one that is called only when the condition holds.
        chosen = tuple(own_guards(function.place))
        for call in calls:
            found = [(guard, holds_for(instance, guard, self.regions.changed)) for guard in own_guards(call.place)]
            if any(holds is False for _, holds in found):
                continue  # This object never comes to it.
            under = (*chosen, *(guard for guard, holds in found if not holds))
            self.calls[call.node] = call
            self._came_to(call, (*self._under, *under))
            called += [_Entry(meant, under, call) for meant in self._meant(call, instance)]
        return [entry for entry in called if _is_followed(entry.value)]

    def _meant(self, call: Call, instance: Instance | None) -> list[Value]:
        """What is called; for a parameter what a checkpoint gives for it, or what it is bound to early."""
        if canonical(call.name) in _CALLING:
            return [call.argument(0, "module")]
        meant = self.given.meant(call, of_object(call, instance), self._given_elsewhere)
        return [*meant, *called_by_libraries(call, instance)]

    def _given_elsewhere(self, param: Param) -> list[Value]:
        return self.regions.given_for(param) or ([] if param.default is None else [param.default])

    def _came_to(self, part: Value | Call, under: tuple[Guard, ...]) -> None:
        known = self.conditions.get(part_key(part))
        self.conditions[part_key(part)] = under if known is None else either(known, under)

    def _hooks_of(self, module: Value) -> list[_Entry]:
        return [_Entry(found.hook, found.guards) for found in hooks_on(self.regions.hooks, module)]

    def _enter_instance(self, instance: Instance, cls: Class) -> list[_Entry]:
        self._came_to(instance, self._under)
        self.modules.setdefault(part_key(instance), instance)
        for owner in (cls, *ancestors(cls)):
            forward = owner.body.get("forward") or owner.body.get("__call__")
            if isinstance(forward, Function):
                return self._enter_function(forward, instance)
            if forward is not None:
                return [_Entry(forward, (), self._by)]
        return _held(instance, held_by(instance)) if container_kind(instance) == "Sequential" else []

    def _enter_result(self, result: Result, call: Call) -> list[_Entry]:
        self._came_to(result, self._under)
        if part_key(result) in self.modules:
            return []
        if is_module_list(result):
            return _held(result, given_to(call))
        inner = unwrapped(result)
        if inner is not result:
            return [_Entry(inner, (), self._by)]
        self.modules[part_key(result)] = result
        return _always(given_to_hold(canonical(call.name), call))


def identity(entered: Value) -> _Identity:
    """What tells one value from another; a method is bound anew each time that it is read."""
    if isinstance(entered, Method):
        return id(entered.function), id(entered.receiver)
    return (id(entered),)


def _always(values: Iterable[Value]) -> list[_Entry]:
    return [_Entry(value) for value in values]


def _held(container: Value, parts: Iterable[Value]) -> list[_Entry]:
    """The modules in a container, each with the conditions under which it, and not the container alone, is made."""
    place = made_at(container)
    return [_Entry(part, _beyond(place, made_at(part))) for part in parts]


def _beyond(outer: Place, inner: Place) -> tuple[Guard, ...]:
    """The conditions around ``inner`` alone; what is chosen in each iteration of a loop is taken in one of them."""
    if inner.loops[len(outer.loops) :] or inner.function is not outer.function or not inner.deeper_than(outer):
        return ()
    around = {(guard.test, guard.taken) for guard in outer.guards}
    return tuple(guard for guard in own_guards(inner) if (guard.test, guard.taken) not in around)


def _weaker(known: tuple[Guard, ...], under: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """The conditions under which something runs that runs under ``known``, and under ``under``."""
    return under if len(under) < len(known) else _either_way(known, under)


def _either_way(known: tuple[Guard, ...], under: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """``known``, less the condition whose other branch, under nothing more, is ``under``."""
    held = {(guard.test, guard.taken) for guard in known}
    more = [(guard.test, guard.taken) for guard in under if (guard.test, guard.taken) not in held]
    if len(more) != 1 or (more[0][0], not more[0][1]) not in held:
        return known
    return tuple(guard for guard in known if guard.test is not more[0][0])


def _is_followed(called: Value) -> bool:
    """Whether the inside of what is called belongs to the region and can be looked for."""
    return any(
        isinstance(option, Function | Method | Instance | Result | Element)
        or unwrapped(option) is not option
        or built_with_batch_norm(option) is not None
        for option in options(called)
    )
