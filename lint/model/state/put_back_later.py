"""What puts a model back when something else ends: a callback of an `ExitStack`, a hook, an object that is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.identifiers import words_in
from ...facts.values import Attr, Class, Const, Function, Instance, Method, Partial, Ref, Result, Value, options

if TYPE_CHECKING:
    from ...facts.values import Call
    from ..run import Run

#: Methods that run what they are given at another time, and functions whose object is closed then.
_REGISTERING = (
    *("callback", "push", "push_async_callback", "push_async_exit", "queue_callback"),
    *("register_hook", "register_full_backward_hook", "register_full_backward_pre_hook"),
    "register_post_accumulate_grad_hook",
)
_CLOSING = ("contextlib.closing", "contextlib.aclosing", "weakref.finalize")
#: Words of which one is in everything that puts a model back.
_PUTTING_BACK = frozenset(
    (
        *("set_adapter", "enable_adapters", "enable_adapter_layers", "load_state_dict", "train", "training"),
        *("copy_", "data", "set_", "swap_", "lerp_", "setattr", "restore", "parameters"),
    )
)


def may_be_put_back_later(run: Run, backward: Call) -> bool:
    """Whether the program registers, somewhere before ``backward``, what may put a model back before the pass."""
    registering = [*run.method_calls(*_REGISTERING), *run.calls_to(*_CLOSING)]
    return any(call.order < backward.order and _gets_undoing(call) for call in registering)


def _gets_undoing(call: Call) -> bool:
    # `buffer.push(batch)` has nothing to do with it.
    is_sure = call.method not in ("callback", "push") or _is_stack(call.receiver)
    return any(_may_put_back(option, is_sure) for given in call.args for option in options(given))


def _is_stack(value: Value) -> bool:
    return isinstance(value, Result) and value.call.name.endswith("ExitStack")


def _may_put_back(given: Value, unknown: bool) -> bool:
    """Whether calling, leaving or closing ``given`` may put something back; ``unknown`` for what is not known."""
    match given:
        case Attr(name=name):
            return name in _PUTTING_BACK
        case Partial(func=func):
            return any(_may_put_back(option, unknown) for option in options(func))
        case Function() | Class():
            return not _PUTTING_BACK.isdisjoint(words_in(given.node))
        case Method(function=function):
            return not _PUTTING_BACK.isdisjoint(words_in(function.node))
        case Instance(cls):
            return _may_put_back(cls, unknown)
    return unknown and not isinstance(given, Const | Ref | Result)
