"""Torch's checkpoint wrappers that a program takes off again, before it saves the model for example."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...facts.objects.containers import container_kind, elements
from ...facts.values import Attr, Const, Element, Ref, Value, options
from ..conditions.guards import kinds_asked
from ..flow.mentions import attributes_named
from ..libraries.sharding import root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Guard, Place
    from ..run import Run

#: The attribute under which a wrapper keeps its module, and the constant of torch that says so.
_INNER, _CONSTANT = "_checkpoint_wrapped_module", "._CHECKPOINT_WRAPPED_MODULE"
_WRAPPERS = (".CheckpointWrapper", ".ActivationWrapper")
#: Methods by which a module gets another child, which is their last argument.
_GIVE_CHILD = ("add_module", "register_module", "set_submodule", "__setattr__")


class Step(Protocol):
    """Something that a program does at some time."""

    @property
    def place(self) -> Place:
        """What is around it."""

    @property
    def order(self) -> int:
        """Its position in program order."""


class _Replacement(NamedTuple):
    """A part of ``owner`` becomes ``value``."""

    owner: Value
    value: Value
    place: Place
    order: int


def may_be_taken_off(run: Run, wrapping: Step, model: Value, before: Step) -> bool:
    """Whether something takes off the wrappers that ``wrapping`` puts into ``model`` until ``before`` happens."""
    reads = attributes_named(run.program, _INNER)
    if not all(map(run.met, reads)):
        return True
    steps = [*(step for read in reads for step in run.met(read)), *_reads_by_name(run), *_replaced(run, model)]
    return any(_is_between(step, wrapping, before) for step in steps)


def comes_before(wrapping: Step, step: Step) -> bool:
    """Whether ``step`` may find what ``wrapping`` does: after it, or in a later turn of a loop around both."""
    if wrapping.place.excludes(step.place):
        return False
    is_in_one_loop = not set(wrapping.place.loops).isdisjoint(step.place.loops)
    return is_in_one_loop or wrapping.place.walk != step.place.walk or wrapping.order < step.order


def _is_between(step: Step, wrapping: Step, before: Step) -> bool:
    if not step.place.walk == wrapping.place.walk == before.place.walk:
        return True
    return step.order < before.order and not step.order < wrapping.order < before.order


def _reads_by_name(run: Run) -> Iterator[Step]:
    """Where the module in a wrapper is asked for by a text: `getattr(child, "_checkpoint_wrapped_module")`."""
    for call in run.calls_to("builtins.getattr", "builtins.hasattr", "operator.attrgetter"):
        if any(_names_inner(option) for given in call.args for option in options(given)):
            yield call


def _names_inner(value: Value) -> bool:
    match value:
        case Const(text):
            return text == _INNER
        case Ref(name):
            return name.endswith(_CONSTANT)
    return False


def _replaced(run: Run, model: Value) -> Iterator[Step]:
    """Where wrappers that were asked for, or parts of ``model``, are replaced by modules without one."""
    whole = root(model)
    for step in _replacements(run):
        is_put_back = root(step.owner) is whole and _is_plain_part(step.value, whole)
        if is_put_back or any(map(_asks_for_wrapper, step.place.guards)):
            yield step


def _replacements(run: Run) -> Iterator[_Replacement]:
    """Everything that the program stores in something that it did not build itself."""
    yield from (_Replacement(it.obj, it.value, it.place, it.order) for it in run.writes)
    yield from (_Replacement(it.obj, it.value, it.place, it.order) for it in run.program.stores)
    for call in run.calls_to("builtins.setattr"):
        if len(call.args) == 3:
            yield _Replacement(call.args[0], call.args[2], call.place, call.order)
    for call in run.method_calls(*_GIVE_CHILD):
        if call.args:
            yield _Replacement(call.receiver, call.args[-1], call.place, call.order)


def _asks_for_wrapper(guard: Guard) -> bool:
    return any(isinstance(kind, Ref) and kind.name.endswith(_WRAPPERS) for kind in kinds_asked(guard))


def _is_plain_part(value: Value, whole: Value) -> bool:
    """Whether ``value`` is a module of ``whole``, or a list of them, and no wrapper around one."""
    ways = options(value)
    return bool(ways) and all(_is_plain(way, whole) for way in ways)


def _is_plain(value: Value, whole: Value) -> bool:
    if container_kind(value):
        held = [option for element in elements(value) for option in options(element)]
        return bool(held) and all(_is_plain(option, whole) for option in held)
    return isinstance(value, Attr | Element) and root(value) is whole
