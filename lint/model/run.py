"""One training run as the rules see it: its events in program order, joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..facts.values import Class
from .events import ApplyCheckpointing, Checkpoint, Checkpointing, CheckpointSequential, CheckpointWrap, Event
from .extract import events_of
from .names import canonical
from .region import Region, Regions, classes_checked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.calls import Call
    from ..facts.walk import Program, Write
    from .versions import Versions

E = TypeVar("E", bound=Event)


class Run:
    """The events of a program and what holds for all of it."""

    __slots__ = ("_regions", "events", "program", "versions")

    def __init__(self, program: Program, versions: Versions) -> None:
        self.program = program
        self.versions = versions
        self._regions: Regions | None = None
        self.events: list[Event] = [event for call in program.calls for event in events_of(call)]

    def of(self, kind: type[E]) -> Iterator[E]:
        """The events of ``kind`` (or derived from it), in program order."""
        return (event for event in self.events if isinstance(event, kind))

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

    def regions(self) -> Iterator[tuple[Checkpointing, Region]]:
        """Every checkpoint with what runs inside it."""
        return ((event, self.region(event)) for event in self.of(Checkpointing))

    @property
    def writes(self) -> list[Write]:
        """Every ``obj.field = value`` and ``obj["field"] = value``."""
        return self.program.writes

    def calls_to(self, *names: str) -> Iterator[Call]:
        """The calls of imported functions by canonical name (``torch.manual_seed``)."""
        return (call for call in self.program.calls if call.name and canonical(call.name) in names)

    def method_calls(self, *names: str) -> Iterator[Call]:
        """The calls of methods of these names, whatever the object."""
        return (call for call in self.program.calls if call.method in names)
