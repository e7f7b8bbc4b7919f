"""Where the objects of a program are called, handed over and written, found by the expressions that made them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...facts.objects.containers import held_by
from ...facts.values import Attr, Instance, options
from ..events import GradientSwitch, HfEnable, ModeSwitch, TrainSwitch
from ..types import is_loaded, unwrapped, whole_model

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from ...facts.values import Call, Class, Value
    from ...facts.walk import Program, Write
    from ..events import Event
    from .ordering import Moment

M = TypeVar("M", bound="Moment")
E = TypeVar("E", bound="Event")


def objects_in(value: Value) -> list[Value]:
    """The objects that ``value`` may be, through wrappers."""
    return [inner for option in options(value) for inner in options(unwrapped(option))]


def _switched_by(call: Call) -> Iterator[Value]:
    for given in (*call.args, *call.kwargs.values()):
        if isinstance(given, Attr) and given.name == "train":
            yield given.base


class ByObject(Generic[M]):
    """What happens to objects, found by them; more than they may be found, and the caller tells it apart."""

    __slots__ = ("_found",)

    def __init__(self, about: Iterable[tuple[M, Iterable[Value]]]) -> None:
        self._found: dict[Hashable, dict[int, M]] = {}
        for moment, values in about:
            for key in {it.key() for value in values for it in (value, *objects_in(value))}:
                self._found.setdefault(key, {})[moment.order] = moment

    def of(self, *objects: Value) -> list[M]:
        """What happens to values that are the same as one of ``objects``, and perhaps more, in program order."""
        found: dict[int, M] = {}
        for key in {value.key() for value in objects}:
            found.update(self._found.get(key, {}))
        return [found[order] for order in sorted(found)]


class Happenings(Protocol):
    """The events, calls and writes of a run."""

    program: Program

    @property
    def writes(self) -> list[Write]:
        """Every assignment to an attribute or an item."""
        ...

    def of(self, *kinds: type[E]) -> Iterator[E]:
        """The events of these kinds."""
        ...


class Uses:
    """What a program does with its objects, each question answered by one look at all of it."""

    def __init__(self, run: Happenings) -> None:
        self._run = run

    @cached_property
    def calls(self) -> ByObject[Call]:
        """The calls of objects."""
        return ByObject((call, [call.func]) for call in self._run.program.calls)

    @cached_property
    def handed_over(self) -> ByObject[Call]:
        """The calls that get objects as arguments."""
        return ByObject((call, [*call.args, *call.kwargs.values()]) for call in self._run.program.calls)

    @cached_property
    def switchers(self) -> ByObject[Call]:
        """The calls that get the method `train` of objects, to call it some time: `stack.callback(model.train)`."""
        return ByObject((call, list(_switched_by(call))) for call in self._run.program.calls)

    @cached_property
    def enables(self) -> ByObject[HfEnable]:
        """What switches checkpointing on, by the whole model."""
        return ByObject((enable, [whole_model(enable.model)]) for enable in self._run.of(HfEnable))

    @cached_property
    def switches(self) -> ByObject[ModeSwitch]:
        """The calls of `train` and `eval` of objects."""
        return ByObject((switch, [switch.receiver]) for switch in self._run.of(ModeSwitch))

    @cached_property
    def trained(self) -> list[TrainSwitch]:
        """The calls of `train` of what may be anything but a model that a library loaded, which holds no other one."""
        return [switch for switch in self._run.of(TrainSwitch) if not all(map(is_loaded, objects_in(switch.receiver)))]

    @cached_property
    def freezes(self) -> list[GradientSwitch]:
        """What switches gradients off."""
        return [switch for switch in self._run.of(GradientSwitch) if switch.freezes]

    @cached_property
    def thaws(self) -> list[GradientSwitch]:
        """What may switch them on."""
        return [switch for switch in self._run.of(GradientSwitch) if not switch.freezes]

    @cached_property
    def frozen(self) -> ByObject[GradientSwitch]:
        """What switches gradients off, by the module and by what it holds where it is a container of torch."""
        return ByObject((switch, [switch.module, *held_by(switch.module)]) for switch in self.freezes)

    @cached_property
    def writes(self) -> ByObject[Write]:
        """The writes that store objects."""
        return ByObject((write, [write.value]) for write in self._run.writes)

    def writes_to(self, cls: Class, name: str) -> list[Write]:
        """The writes to attributes, or items, of this name of objects of ``cls``."""
        return self._by_field.get((cls, name), [])

    @cached_property
    def _by_field(self) -> dict[tuple[Class, str], list[Write]]:
        found: dict[tuple[Class, str], list[Write]] = {}
        for write in self._run.writes:
            if isinstance(write.obj, Instance):
                found.setdefault((write.obj.cls, write.field), []).append(write)
        return found
