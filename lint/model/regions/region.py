"""What runs again in a checkpointed region: its functions and modules, through classes, containers and closures."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...facts.objects.attributes import made_at
from ...facts.objects.classes import ancestors
from ...facts.objects.containers import container_kind, given_to, held_by, is_module_list, parts_passed
from ...facts.parameters import positional_names
from ...facts.values import (
    Attr,
    Choice,
    Class,
    Element,
    Function,
    Instance,
    Method,
    Param,
    Partial,
    Result,
    Seq,
    Value,
    conditional_options,
    options,
)
from ..calls.forward_hooks import hooks_on, registered_in
from ..calls.given import asked_of_self, holds_for, of_object
from ..conditions.guards import own_guards
from ..events.library_checkpoints import DeepSpeedCheckpoint
from ..known_models.held_norms import built_with_batch_norm
from ..known_models.torch_modules import given_to_hold
from ..names import canonical
from ..types import PASS_THROUGH
from ..wrapping.check_functions import classes_asked, classes_compared, policy_classes
from ..wrapping.named_checks import names_asked
from .given_parameters import NOTHING_GIVEN, GivenParameters, called_parameter

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator, Mapping

    from ...facts.values import Call, Guard, Place
    from ...facts.walk import Program
    from ..events.checkpoints import FunctionCheckpoint

    #: Something to enter, and the conditions it is entered under, those of what leads to it left out.
    _Entry: TypeAlias = tuple[Value, tuple[Guard, ...]]
    _Identity: TypeAlias = tuple[int, ...]
    #: The same with what it is entered from, behind how many conditions there are and a number.
    _Queued: TypeAlias = tuple[int, int, Value, _Identity | None, tuple[Guard, ...]]
    _Key: TypeAlias = tuple[ast.AST | None, str]

_SEQUENTIAL = "torch.nn.Sequential"
#: Functions whose first argument runs again, with the others.
_CHECKPOINTS = frozenset(("torch.utils.checkpoint.checkpoint", *DeepSpeedCheckpoint.NAMES))


class Region(NamedTuple):
    """The inside of a checkpoint, as far as this file shows it."""

    #: Functions of the file whose bodies run again.
    functions: tuple[Function, ...]
    #: Modules that run again: objects of the file's classes and of imported ones.
    modules: tuple[Value, ...]
    #: The calls made inside, one for each expression.
    calls: tuple[Call, ...]
    #: The conditions under which the region comes to its modules and calls.
    conditions: Mapping[_Key, tuple[Guard, ...]]

    def conditions_of(self, part: Value | Call) -> tuple[Guard, ...]:
        """The conditions under which the region comes to ``part``, one of its modules or calls."""
        return self.conditions.get(_key(part), ())

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


class Regions:
    """Finds regions in one program; the search of a body is done once."""

    __slots__ = ("_calls", "_checkpointed", "_known", "changed", "classes", "hooks")

    def __init__(self, program: Program) -> None:
        self.classes = program.classes
        #: The attributes that something else than a constructor sets.
        self.changed = frozenset(
            write.field
            for write in program.writes
            if write.place.function is None or write.place.function.name != "__init__"
        )
        #: What registers hooks on modules for good.
        self.hooks = registered_in(program.calls)
        self._known: dict[tuple[int, ...], tuple[Value, Region]] = {}
        self._calls: dict[Function | ast.AST, list[Call]] = {}
        #: The checkpoints of each function of the file, with how many of its parameters are taken already.
        self._checkpointed: dict[ast.AST, list[tuple[Call, int]]] = {}
        for call in program.calls:
            self._note_checkpoint(call)
            function = call.place.function
            if function is not None:
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

    def calls_in(self, function: Function) -> list[Call]:
        """The calls in the body of ``function``, nested functions excluded.

        Those of another function that the same text defined only when this one was not walked itself.
        """
        return self._calls.get(function if function.walked else function.node, [])

    def of(self, *entered: Value) -> Region:
        """What runs when ``entered`` (functions, modules, or containers of them) is called."""
        known = self._known.get(_identity(entered[0])) if len(entered) == 1 else None
        if known is not None:
            return known[1]
        region = _Search(self).run(entered)
        if len(entered) == 1:
            self._known[_identity(entered[0])] = (entered[0], region)
        return region

    def run_by(self, checkpoint: FunctionCheckpoint) -> Region:
        """What a checkpoint runs again: a function with what this one gives it, not with what others do."""
        given = GivenParameters(checkpoint.function, checkpoint.inputs, checkpoint.function_kwargs)
        if not given:
            return self.of(checkpoint.function)
        key = (id(checkpoint.call), *_identity(checkpoint.function))
        if key not in self._known:
            self._known[key] = checkpoint.function, _Search(self, given).run([checkpoint.function])
        return self._known[key][1]


class _Search:
    """One search from what is called into everything it calls."""

    def __init__(self, regions: Regions, given: GivenParameters = NOTHING_GIVEN) -> None:
        self.regions = regions
        self.given = given
        self.functions: dict[Function, Function] = {}
        self.modules: dict[_Key, Value] = {}
        self.calls: dict[ast.AST, Call] = {}
        self.conditions: dict[_Key, tuple[Guard, ...]] = {}
        #: The conditions around what is entered now.
        self._under: tuple[Guard, ...] = ()

    def run(self, entered: Iterable[Value]) -> Region:
        """Enter each of ``entered`` and what it calls, and give all that was found."""
        counter = count()
        # What is under the fewest conditions comes first, so that each part gets the weakest it is under.
        queue: list[_Queued] = [(0, next(counter), value, None, ()) for value in entered]
        # A list may contain itself. Values are kept, so that no other one gets the identity of one that is gone.
        seen: dict[_Identity, Value] = {}
        # What both branches of a condition enter is under none by the time that its inside is looked at.
        weakest: dict[_Identity | None, tuple[Guard, ...]] = {None: ()}
        while queue:
            _, _, value, outer, more = heappop(queue)
            identity, self._under = _identity(value), (*weakest[outer], *more)
            if identity not in seen:
                seen[identity], weakest[identity] = value, self._under
                for inner, further in self._enter(value):
                    heappush(queue, (len(self._under) + len(further), next(counter), inner, identity, further))
                continue
            weakest[identity] = _weaker(weakest[identity], self._under)
            if _key(value) in self.modules:
                self._came_to(value, self._under)
        found = tuple(self.functions.values()), tuple(self.modules.values()), tuple(self.calls.values())
        return Region(*found, self.conditions)

    def _enter(self, value: Value) -> Iterable[_Entry]:
        match value:
            case Choice():
                return conditional_options(value)
            case Function():
                return self._enter_function(value)
            case Method(Instance() as instance, function):
                return self._enter_function(function, instance)
            case Method(_, function) | Partial(func=Function() as function):
                return self._enter_function(function)
            case Partial(func=inner) | Attr(base=inner, name="forward" | "__call__"):
                return [(inner, ())]
            case Instance(cls):
                return [*self._hooks_of(value), *self._enter_instance(value, cls)]
            case Result(call):
                return [*self._hooks_of(value), *self._enter_result(value, call)]
            case Seq(_, items):
                return _always(items)
            case Element() if passed := parts_passed(value):
                return passed
            case Attr() | Element() if built_with_batch_norm(value) is not None:
                self._came_to(value, self._under)
                self.modules.setdefault(_key(value), value)
        return []

    def _enter_function(self, function: Function, instance: Instance | None = None) -> list[_Entry]:
        """Enter ``function``, a method of ``instance``: what the object was given is its own, not that of its class."""
        calls = self.regions.calls_in(function)
        if function in self.functions:
            calls = [call for call in calls if instance is not None and asked_of_self(call) is not None]
        self.functions[function] = function
        # What decorators put around it runs with it.
        called: list[_Entry] = [(wrapper, ()) for wrapper in function.around]
        # A function that is chosen by a condition is the one that is called only when the condition holds.
        chosen = tuple(own_guards(function.place))
        for call in calls:
            found = [(guard, holds_for(instance, guard, self.regions.changed)) for guard in own_guards(call.place)]
            if any(holds is False for _, holds in found):
                continue  # This object never comes to it.
            under = (*chosen, *(guard for guard, holds in found if not holds))
            self.calls[call.node] = call
            self._came_to(call, (*self._under, *under))
            called += [(meant, under) for meant in self._meant(of_object(call, instance))]
        return [(value, under) for value, under in called if _is_followed(value)]

    def _meant(self, called: Value) -> list[Value]:
        """What is called; for a parameter what a checkpoint gives for it, or what it is bound to early."""
        param = called_parameter(called)
        if param is None:
            return [called]
        if self.given.knows(param.function):
            return self.given.values_of(param)
        return self.regions.given_for(param) or ([] if param.default is None else [param.default])

    def _came_to(self, part: Value | Call, under: tuple[Guard, ...]) -> None:
        known = self.conditions.get(_key(part))
        self.conditions[_key(part)] = under if known is None else _weaker(known, under)

    def _hooks_of(self, module: Value) -> list[_Entry]:
        return [(hook, tuple(own_guards(call.place))) for hook, call in hooks_on(self.regions.hooks, module)]

    def _enter_instance(self, instance: Instance, cls: Class) -> list[_Entry]:
        self._came_to(instance, self._under)
        self.modules.setdefault(_key(instance), instance)
        for owner in (cls, *ancestors(cls)):
            forward = owner.body.get("forward") or owner.body.get("__call__")
            if isinstance(forward, Function):
                return self._enter_function(forward, instance)
            if forward is not None:
                return [(forward, ())]
        return _held(instance, held_by(instance)) if container_kind(instance) == "Sequential" else []

    def _enter_result(self, result: Result, call: Call) -> list[_Entry]:
        self._came_to(result, self._under)
        if _key(result) in self.modules:
            return []
        name = canonical(call.name)
        if is_module_list(result):
            return _held(result, given_to(call))
        if name in PASS_THROUGH and call.args:
            return _always(call.args[:1])
        self.modules[_key(result)] = result
        return _always(given_to_hold(name, call))


def _identity(entered: Value) -> _Identity:
    """What tells one value from another; a method is bound anew each time that it is read."""
    if isinstance(entered, Method):
        return id(entered.function), id(entered.receiver)
    return (id(entered),)


def _key(part: Value | Call) -> _Key:
    """What is one part of a region: all objects of a class, what one expression makes, a part of that, a call."""
    match part:
        case Instance(cls):
            return cls.node, ""
        case Result(call):
            return call.node, f"{call.name}()"
        case Attr(base=Result(call), name=name):
            return call.node, f"{call.name}().{name}"
        case Element(of=Attr() as whole):
            return part.node, _key(whole)[1]
    return part.node, ""


def _always(values: Iterable[Value]) -> list[_Entry]:
    return [(value, ()) for value in values]


def _held(container: Value, parts: Iterable[Value]) -> list[_Entry]:
    """The modules in a container, each with the conditions under which it, and not the container alone, is made."""
    place = made_at(container)
    return [(part, _beyond(place, made_at(part))) for part in parts]


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
        isinstance(option, Function | Method | Instance | Result | Element) or built_with_batch_norm(option) is not None
        for option in options(called)
    )


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
        if isinstance(function, Partial):
            function = function.func
        if isinstance(function, Function):
            asked = [call.args[1] for call in regions.calls_in(function) if _asks_kind(call)]
            for kinds in asked:
                found += kinds.items if isinstance(kinds, Seq) else [kinds]
            # The body of a function of another module is walked only where the run calls it.
            found += [] if asked else classes_asked(function)
            found += classes_compared(function)
    return found
