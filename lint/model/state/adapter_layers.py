"""Settings of the adapters in the layers of a model, which a loop over its modules changes: `set_scale("a", 0)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import is_inside
from ...facts.values import UNKNOWN, Attr, Const, Element, Result, Value, equals, one, same
from ..flow.frames import stands_between
from ..types import unwrapped
from .put_back_later import may_be_put_back_later

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call
    from ...facts.walk import Write
    from ..run import Run

#: Methods of the layers of PEFT: the position and the name of what is set, and what holds from the start.
_METHODS = {
    "set_scale": (1, "scale", Const(1.0, None)),
    "enable_adapters": (0, "enabled", Const(True, None)),
    "_disable_adapters": (0, "", Const(False, None)),
}
#: Attributes of them.
_SCALING, _DISABLED = "scaling", "_disable_adapters"
_ASKING = ("builtins.isinstance", "builtins.hasattr")


class _Setting(NamedTuple):
    """One way to say what the layers do, and what it says."""

    moment: Call | Write
    what: str
    value: Value
    #: The adapter that it is said of; unknown for what holds for all of them.
    adapter: Value


def layers_set(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call | Write]:
    """What leaves the layers of ``model`` with another setting than ``forward`` ran with, for ``backward``."""
    settings = [it for it in _settings(run, model) if it.moment.order < backward.order] if _may_set(run) else []
    between = [it for it in settings if it.moment.order > forward.order]
    if not between or may_be_put_back_later(run, backward):
        return
    left = between[-1]
    before = [it for it in settings if it.moment.order < forward.order]
    if any(it.what != left.what or not _are_alike(it, left) for it in settings):
        return  # Each of them may be of other layers, or take another one back.
    if not stands_between(run, left.moment, forward, backward):
        return
    if _was_another(before, left):
        yield left.moment


def _was_another(before: list[_Setting], left: _Setting) -> bool:
    """Whether the forward pass certainly ran with another setting than ``left``, which comes behind ``before``."""
    if not isinstance(left.value, Const):
        return False
    if before:
        was = before[-1].value
        return isinstance(was, Const) and was.value != left.value.value
    # How much an adapter counts its configuration says: it is not zero.
    return bool(left.value.value != _METHODS[left.what][2].value if left.what in _METHODS else left.value.value == 0)


def _may_set(run: Run) -> bool:
    """Whether each adapter of the program is active: what is set of one that is not makes no difference."""
    return not any(run.method_calls("set_adapter", "delete_adapter"))


def _settings(run: Run, model: Value) -> list[_Setting]:
    found = []
    for call in run.method_calls("set_scale", "enable_adapters"):
        position, name, _ = _METHODS[call.method]
        if _is_layer(call.receiver, model):
            adapter = call.argument(0, "adapter") if position else UNKNOWN
            found.append(_Setting(call, call.method, call.argument(position, name), adapter))
    for write in run.writes:
        match write.obj:
            case Attr(base=layer, name="scaling") if write.is_item and _is_layer(layer, model):
                found.append(_Setting(write, _SCALING, write.value, Const(write.field, None)))
            case layer if write.field == _DISABLED and _is_layer(layer, model):
                found.append(_Setting(write, _DISABLED, write.value, UNKNOWN))
    return sorted(found, key=lambda it: it.moment.order)


def _is_layer(value: Value, model: Value) -> bool:
    """Whether ``value`` is what a loop over the modules of ``model`` takes."""
    match value:
        case Element(of=Result(listed)) | Element(of=Element(of=Result(listed)), index=1):
            return listed.method in ("modules", "named_modules") and one(unwrapped(listed.receiver), model)
    return False


def _are_alike(left: _Setting, right: _Setting) -> bool:
    """Whether both are of the same layers: one statement, or two whose conditions ask for what the layers are."""
    is_same = left.moment.node is right.moment.node or all(map(_asks_for_layer, (left.moment, right.moment)))
    adapters = left.adapter, right.adapter
    return is_same and (adapters == (UNKNOWN, UNKNOWN) or _is_same_adapter(*adapters))


def _is_same_adapter(left: Value, right: Value) -> bool:
    return left is right or same(left, right) or (isinstance(right, Const) and equals(left, right.value) is True)


def _asks_for_layer(moment: Call | Write) -> bool:
    loop = moment.place.loops[-1] if moment.place.loops else None
    inside = (guard for guard in moment.place.guards if loop is not None and is_inside(guard.test, loop))
    return all(isinstance(it.value, Result) and it.value.call.name in _ASKING for it in inside)
