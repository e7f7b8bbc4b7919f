"""One training run as the rules see it: its events in program order, joined."""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, TypeVar, cast

from ..facts.nodes import extent, is_inside
from ..facts.origin import origin
from ..facts.values import Class
from .conditions.guards import excludes_mode
from .conditions.older_versions import is_for_other_versions
from .events import (
    ApplyCheckpointing,
    Checkpoint,
    Checkpointing,
    CheckpointPartial,
    CheckpointSequential,
    CheckpointWrap,
    Event,
    HfSetting,
    TorchCheckpoint,
)
from .extract import events_of
from .names import canonical
from .regions.dropped import is_dropped
from .regions.inputs import needs_gradient_of_data
from .regions.region import Region, Regions, classes_checked
from .state.modes import stays_in_eval

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

    from ..facts.calls import Call
    from ..facts.places import Place
    from ..facts.walk import Program, Write
    from .conditions.versions import Versions

E = TypeVar("E", bound=Event)


class Run:
    """The events of a program and what holds for all of it."""

    __slots__ = (
        "_by_function",
        "_by_kind",
        "_by_method",
        "_by_name",
        "_dropped",
        "_enabling",
        "_in_eval",
        "_met",
        "_reached",
        "_regions",
        "events",
        "program",
        "versions",
    )

    def __init__(self, program: Program, versions: Versions) -> None:
        self.program = program
        self.versions = versions
        self._regions: Regions | None = None
        self._by_method: dict[str, list[Call]] | None = None
        self._by_name: dict[str, list[Call]] | None = None
        self._met: dict[ast.AST, list[Call | Write]] | None = None
        self._enabling: frozenset[ast.AST] | None = None
        self._by_kind: dict[type[Event], list[Event]] = {}
        self._by_function: dict[tuple[int, int], list[Call]] | None = None
        self.events: list[Event] = [event for call in program.calls for event in events_of(call)]
        self._reached: list[Event] | None = None
        self._in_eval: dict[ast.Call, bool] = {}
        self._dropped: frozenset[ast.AST] | None = None

    def of(self, kind: type[E]) -> Iterator[E]:
        """The events of ``kind`` (or derived from it) that a run of the project comes to, in program order."""
        if kind not in self._by_kind:
            self._by_kind[kind] = [event for event in self._events_reached() if isinstance(event, kind)]
        return iter(cast("list[E]", self._by_kind[kind]))

    def _events_reached(self) -> list[Event]:
        if self._reached is None:
            self._reached = [event for event in self.events if self._is_reached(event)]
        return self._reached

    def _is_reached(self, event: Event) -> bool:
        if is_for_other_versions(event.place, self.versions):
            return False
        if isinstance(event, TorchCheckpoint) and self._is_outside_of_its_mode(event):
            return False
        return not (isinstance(event, Checkpoint) and needs_gradient_of_data(self.program, self.bodies, event))

    def _is_outside_of_its_mode(self, event: TorchCheckpoint) -> bool:
        """Whether the checkpoint is behind `self.training`, and the model is in eval mode all the time."""
        return any(excludes_mode(guard, training=False) for guard in event.place.guards) and self.stays_in_eval(event)

    def stays_in_eval(self, event: Checkpointing) -> bool:
        """Whether what comes to ``event`` is in eval mode whenever it runs."""
        if event.node not in self._in_eval:
            self._in_eval[event.node] = stays_in_eval(self, event)
        return self._in_eval[event.node]

    @property
    def bodies(self) -> Regions:
        """What runs inside functions and modules."""
        if self._regions is None:
            self._regions = Regions(self.program)
        return self._regions

    def region(self, event: Event) -> Region:
        """What runs again because of a checkpoint event."""
        match event:
            case Checkpoint():
                return self.bodies.of(event.function)
            case CheckpointSequential():
                return self.bodies.of(event.functions)
            case CheckpointWrap():
                return self.bodies.of(event.module)
            case ApplyCheckpointing():
                accepted = classes_checked(event.check, self.bodies)
                return self.bodies.of(*(cls.instance for cls in accepted if isinstance(cls, Class)))
        return self.bodies.of()

    def replayed(self, kind: type[E]) -> Iterator[E]:
        """Those of ``kind`` whose region a backward pass may run again: something uses their result."""
        if self._dropped is None:
            found = (event for event in self.of(Checkpointing) if is_dropped(self.program, self.bodies, event))
            self._dropped = frozenset(event.node for event in found)
        return (event for event in self.of(kind) if event.node not in self._dropped)

    def regions(self) -> Iterator[tuple[Checkpointing, Region]]:
        """Every checkpoint whose region may run again, with what runs inside it."""
        return ((event, self.region(event)) for event in self.replayed(Checkpointing))

    def met(self, node: ast.AST) -> list[Call | Write]:
        """The call or the write ``node``, once for each time it was met; for a part of one, the one around it."""
        if self._met is None:
            self._met = {}
            facts: list[Call | Write] = [*self.program.calls, *self.program.writes]
            for fact in facts:
                self._met.setdefault(fact.node, []).append(fact)
        return self._met.get(node) or self._met.get(self._around(node) or node, [])

    def _around(self, node: ast.AST) -> ast.AST | None:
        """The innermost call or write that ``node`` is a part of."""
        outer = (other for other in self._met or () if is_inside(node, other) and origin(other) == origin(node))
        return min(outer, key=extent, default=None)

    def places(self, node: ast.AST) -> list[Place]:
        """Where what ``node`` is, or is a part of, happens, once for each time it was met."""
        return [fact.place for fact in self.met(node)]

    def running_again(self, node: ast.AST) -> frozenset[ast.AST]:
        """The functions that run again because of the checkpoint at ``node``; none for other calls."""
        here = (event for event in self.of(Checkpointing) if event.node is node)
        return frozenset(function.node for event in here for function in self.region(event).functions)

    def enables(self, node: ast.AST) -> bool:
        """Whether ``node`` is a call that makes something checkpointed, or says how."""
        if self._enabling is None:
            kinds = Checkpointing, HfSetting, CheckpointPartial
            self._enabling = frozenset(event.node for event in self.events if isinstance(event, kinds))
        return node in self._enabling

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
        if self._by_method is None:
            self._by_method = _grouped((call.method, call) for call in self.program.calls if call.method)
        return _in_order(self._by_method, names)

    def calls_beside(self, call: Call) -> Iterator[Call]:
        """The other calls of the function that makes ``call``, in the same walk, the nearest first."""
        if self._by_function is None:
            self._by_function = {}
            for other in self.program.calls:
                self._by_function.setdefault(_home(other), []).append(other)
        here = self._by_function.get(_home(call), [])
        middle = bisect_left(here, call.order, key=lambda other: other.order)
        return _outward(here, middle, call)


def _home(call: Call) -> tuple[int, int]:
    """The function that makes a call, and the walk through it."""
    return id(call.place.function), call.place.walk


def _outward(calls: list[Call], middle: int, start: Call) -> Iterator[Call]:
    """``calls`` without ``start``, from the ``middle`` to both ends."""
    for before, after in zip_longest(range(middle - 1, -1, -1), range(middle, len(calls))):
        for index in (after, before):
            if index is not None and calls[index] is not start:
                yield calls[index]


def _grouped(named: Iterable[tuple[str, Call]]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for name, call in named:
        found.setdefault(name, []).append(call)
    return found


def _in_order(groups: dict[str, list[Call]], names: tuple[str, ...]) -> Iterator[Call]:
    """The calls in the groups ``names``, in program order."""
    found = [groups[name] for name in dict.fromkeys(names) if name in groups]
    return iter(found[0] if len(found) == 1 else sorted(chain(*found), key=lambda call: call.order))
