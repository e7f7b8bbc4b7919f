"""What a program does, event by event and call by call, as it is written."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, TypeVar, cast

from ..facts.objects.containers import container_kind, held_by
from ..facts.values import Class, Function, Instance, Method
from .calls.call_targets import call_targets
from .calls.put_in_place import calls_by_replacement
from .conditions.older_versions import is_for_other_versions
from .events import BlockWrapping, CheckpointSequential, CheckpointWrap, Event, FunctionCheckpoint, TimmSegments
from .events.extract import events_in
from .flow.uses import Uses
from .names import canonical
from .regions.bodies import Regions, classes_checked
from .types import unwrapped
from .wrapping.check_functions import accepted_parts
from .wrapping.wrapped_in_loops import wrapped_in_loop

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator, Mapping

    from ..facts.values import Call, Place, Value
    from ..facts.walk import Program, Untaken, Write
    from .conditions.versions import Versions
    from .regions.region import Region

E = TypeVar("E", bound=Event)


class History:
    """The events and calls of a program in program order, without those for versions that it does not use."""

    __slots__ = (
        "_by_function",
        "_by_kind",
        "_by_method",
        "_by_name",
        "_by_node",
        "_by_path",
        "_by_target",
        "_forwards",
        "_reached",
        "_regions",
        "_replacements",
        "_uses",
        "events",
        "program",
        "versions",
    )

    def __init__(self, program: Program, versions: Versions) -> None:
        self.program = program
        self.versions = versions
        self.events: list[Event] = events_in(program)
        self._reached: dict[Event, bool] = {}
        self._regions: Regions | None = None
        self._uses: Uses | None = None
        self._by_kind: dict[tuple[type[Event], ...], list[Event]] = {}
        self._by_method: dict[str, list[Call]] | None = None
        self._by_name: dict[str, list[Call]] | None = None
        self._by_function: dict[tuple[int, int], list[Call]] | None = None
        self._by_target: dict[ast.AST, list[Call]] | None = None
        self._by_node: dict[ast.AST, list[Call]] | None = None
        self._forwards: dict[ast.AST, list[Call]] | None = None
        self._replacements: dict[ast.AST, list[Call]] | None = None
        self._by_path: dict[tuple[int, tuple[ast.Call, ...]], Call] | None = None

    def of(self, *kinds: type[E]) -> Iterator[E]:
        """The events of these kinds (or derived from one) that a run of the project comes to, in program order."""
        if kinds not in self._by_kind:
            self._by_kind[kinds] = [
                event for event in self.events if isinstance(event, kinds) and self._comes_to(event)
            ]
        return iter(cast("list[E]", self._by_kind[kinds]))

    def _comes_to(self, event: Event) -> bool:
        # Kind by kind: whether a checkpoint is reached depends on other events, such as switches of the mode.
        if event not in self._reached:
            self._reached[event] = self._is_reached(event)
        return self._reached[event]

    def _is_reached(self, event: Event) -> bool:
        return not is_for_other_versions(event.place, self.versions)

    @property
    def bodies(self) -> Regions:
        """What runs inside functions and modules."""
        if self._regions is None:
            self._regions = Regions(self.program)
        return self._regions

    @property
    def uses(self) -> Uses:
        """What the program does with its objects."""
        if self._uses is None:
            self._uses = Uses(self)
        return self._uses

    def region(self, event: Event) -> Region:
        """What runs again because of a checkpoint event."""
        match event:
            case FunctionCheckpoint():
                return self.bodies.run_by(event)
            case CheckpointSequential() | TimmSegments():
                return self.bodies.of(event.functions)
            case CheckpointWrap():
                return self.bodies.of(event.module, *wrapped_in_loop(self.program, event))
            case BlockWrapping() if event.wraps_all:
                whole = unwrapped(event.model)
                # The model itself stays as it is.
                return self.bodies.of(*(part for part in self.bodies.of(whole).modules if part is not whole))
            case BlockWrapping():
                accepted = classes_checked(event.check, self.bodies)
                own = (cls.instance for cls in accepted if isinstance(cls, Class))
                whole = unwrapped(event.model)
                parts = [part for part in self.bodies.of(whole).modules if part is not whole]
                return self.bodies.of(*own, *accepted_parts(event.check, parts))
        return self.bodies.of()

    @property
    def writes(self) -> list[Write]:
        """Every ``obj.field = value`` and ``obj["field"] = value``."""
        return self.program.writes

    def calls_to(self, *names: str) -> Iterator[Call]:
        """The calls of imported functions by canonical name (``torch.manual_seed``)."""
        if self._by_name is None:
            self._by_name = _grouped((canonical(call.name), call) for call in self.program.calls if call.name)
        return _in_order(self._by_name, names)

    def method_calls(self, *names: str) -> Iterator[Call]:
        """The calls of methods of these names, whatever the object."""
        return _in_order(self._calls_by_method(), names)

    def _calls_by_method(self) -> dict[str, list[Call]]:
        if self._by_method is None:
            self._by_method = _grouped((call.method, call) for call in self.program.calls if call.method)
        return self._by_method

    def method_calls_between(self, first: Call, last: Call, *names: str) -> Iterator[Call]:
        """The calls of methods of these names behind ``first`` and before ``last``, in program order."""
        groups = self._calls_by_method()
        found = [_behind(groups.get(name, []), first, last) for name in dict.fromkeys(names)]
        return iter(sorted(chain(*found), key=lambda call: call.order))

    def calls_of(self, function: Function) -> list[Call]:
        """The calls of ``function`` by its name or as a method, whichever walk defined it."""
        if self._by_target is None:
            self._by_target = {}
            for call in self.program.calls:
                match call.func:
                    case (Function() as target) | Method(function=target):
                        self._by_target.setdefault(target.node, []).append(call)
        return self._by_target.get(function.node, [])

    def calls_at(self, node: ast.AST) -> list[Call]:
        """What the expression ``node`` calls, in program order: each time that it is met, each function it may mean."""
        if self._by_node is None:
            self._by_node = {}
            for call in self.program.calls:
                self._by_node.setdefault(call.node, []).append(call)
        return self._by_node.get(node, [])

    @property
    def forwards(self) -> Mapping[ast.AST, list[Call]]:
        """By method `forward`, the calls of modules of the program that come to it; it is not walked for them."""
        if self._forwards is None:
            self._forwards = {}
            for call in self.program.calls:
                module = _first_module(call.func)
                for target in call_targets(module) if isinstance(module, Instance) else ():
                    self._forwards.setdefault(target.function.node, []).append(call)
        return self._forwards

    @property
    def replacements(self) -> Mapping[ast.AST, list[Call]]:
        """By function that is put in the place of a `forward`, the calls of modules of the program that come to it."""
        if self._replacements is None:
            self._replacements = calls_by_replacement(self.writes, self.program.calls)
        return self._replacements

    def path_to(self, call: Call) -> list[Call]:
        """The calls that led to ``call``, outermost first, and itself; nothing when one of them is not known."""
        callers = self.callers_of(call.place)
        return [*callers, call] if callers is not None else []

    def callers_of(self, place: Place) -> list[Call] | None:
        """The calls that led to ``place``, outermost first; None when one of them is not known."""
        if self._by_path is None:
            calls = self.program.calls
            self._by_path = {(other.place.walk, (*other.place.stack, other.node)): other for other in calls}
        outer = [self._by_path.get((place.walk, place.stack[:depth])) for depth in range(1, len(place.stack) + 1)]
        known = [found for found in outer if found is not None]
        return known if len(known) == len(outer) else None

    def untaken_beside(self, call: Call) -> Iterator[Untaken]:
        """The calls that never come about in the function that makes ``call``, in the same walk."""
        return (untaken for untaken in self.program.untaken if _home(untaken.call) == _home(call))

    def calls_beside(self, call: Call) -> Iterator[Call]:
        """The other calls of the function that makes ``call``, in the same walk, the nearest first."""
        if self._by_function is None:
            self._by_function = {}
            for other in self.program.calls:
                self._by_function.setdefault(_home(other), []).append(other)
        here = self._by_function.get(_home(call), [])
        middle = bisect_left(here, call.order, key=lambda other: other.order)
        return _outward(here, middle, call)


def _first_module(called: Value) -> Value:
    """What gets the arguments of a call: the model for a wrapper around it, the first module of an `nn.Sequential`."""
    for _ in range(8):
        called = unwrapped(called)
        held = held_by(called) if container_kind(called) == "Sequential" else []
        if not held:
            break
        called = held[0]
    return called


def _home(call: Call) -> tuple[int, int]:
    """The function that makes a call, and the walk through it."""
    return id(call.place.function), call.place.walk


def _outward(calls: list[Call], middle: int, start: Call) -> Iterator[Call]:
    """``calls`` without ``start``, from the ``middle`` to both ends."""
    for before, after in zip_longest(range(middle - 1, -1, -1), range(middle, len(calls))):
        for index in (after, before):
            if index is not None and calls[index] is not start:
                yield calls[index]


def _behind(calls: list[Call], first: Call, last: Call) -> list[Call]:
    """Those of ``calls``, which are in program order, between the two."""
    start = bisect_right(calls, first.order, key=lambda call: call.order)
    return calls[start : bisect_left(calls, last.order, start, key=lambda call: call.order)]


def _grouped(named: Iterable[tuple[str, Call]]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for name, call in named:
        found.setdefault(name, []).append(call)
    return found


def _in_order(groups: dict[str, list[Call]], names: tuple[str, ...]) -> Iterator[Call]:
    """The calls in the groups ``names``, in program order."""
    found = [groups[name] for name in dict.fromkeys(names) if name in groups]
    return iter(found[0] if len(found) == 1 else sorted(chain(*found), key=lambda call: call.order))
