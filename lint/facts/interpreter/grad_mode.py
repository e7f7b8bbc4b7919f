"""What switches the grad mode of torch, and what brings it back: contexts, decorators, statements, stacks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..grad_modes import agreed
from ..objects.classes import ancestors
from ..values import Absent, Attr, Instance, Ref, Result, Unknown, one, options, truth
from ..values.grad_mode import GradMode, GradState

if TYPE_CHECKING:
    from ..values import Call, Function, Value
    from ..walk import Walk

#: Contexts of torch by their last name, with the mode inside.
_CONTEXTS = {"no_grad": GradMode.OFF, "inference_mode": GradMode.OFF, "enable_grad": GradMode.ON}
#: How functions are called that switch gradients off, of whatever library.
_SWITCHING_OFF = ("no_grad", "nograd", "no_gradient", "disable_grad", "without_grad", "inference_mode")
#: Those that get the mode as their argument `mode`; a call of the first kind switches without a `with`.
_SETTERS = frozenset(("set_grad_enabled", "_set_grad_enabled"))
_TAKING_MODE = _SETTERS | {"inference_mode"}
#: Methods of contexts and of stacks of them.
STACK_METHODS = frozenset(("enter_context", "enter_async_context", "callback", "close", "__enter__", "__exit__"))


def set_by_call(walk: Walk, call: Call) -> None:
    """``torch.set_grad_enabled(False)``: it holds from the call on, with or without a `with`."""
    grad = walk.program.grad
    grad.restored_by[call.node] = grad.current
    grad.current = _asked_before(call) or GradState(_asked(call))


def _asked_before(call: Call) -> GradState | None:
    """The state to bring back, where a call gives what `torch.is_grad_enabled()` gave."""
    match call.argument(0, "mode"):
        case Result(asked) if _is_question(asked):
            return asked.grad
    return None


def _is_question(call: Call) -> bool:
    return call.name.endswith(".is_grad_enabled")


def mode_inside(walk: Walk, context: Value) -> GradMode | None:
    """The mode that entering ``context`` sets; None where it leaves the mode as it is."""
    current = walk.program.grad.current.mode
    found = {_mode_of(walk, option) for option in options(context)}
    if found == {None}:
        return None
    modes = {current if mode is None else mode for mode in found}
    if len(modes) == 1:
        return modes.pop()
    return GradMode.EITHER if GradMode.OFF in modes else GradMode.OPEN


def _mode_of(walk: Walk, context: Value) -> GradMode | None:
    match context:
        case Result(call):
            return _of_torch(call.name or call.method, call)
        case Instance(cls):
            names = (base.name for owner in (cls, *ancestors(cls)) for base in owner.bases if isinstance(base, Ref))
            return next(filter(None, (_of_torch(name, None) for name in names)), None)
        case Unknown(node=ast.AST() as node):
            return agreed(walk.program.grad.yielded_in.get(node, ()))
    return None


def _of_torch(name: str, call: Call | None) -> GradMode | None:
    library, _, last = name.rpartition(".")
    if not library.startswith("torch"):
        return GradMode.EITHER if last.endswith(_SWITCHING_OFF) else None
    return _asked(call) if call is not None and last in _TAKING_MODE else _CONTEXTS.get(last)


def _asked(call: Call) -> GradMode:
    """The mode that a call asks for by its argument."""
    wanted = call.argument(0, "mode")
    is_inference = call.name.endswith("inference_mode")
    if isinstance(wanted, Absent):
        return GradMode.OFF if is_inference else GradMode.OPEN
    return _meant(wanted, GradMode.OFF if is_inference else GradMode.ON)


def _meant(wanted: Value, on: GradMode = GradMode.ON) -> GradMode:
    """The mode that a value stands for: True for ``on``; what `torch.is_grad_enabled()` gave is the mode there."""
    off = GradMode.OFF if on is GradMode.ON else GradMode.ON
    found = set()
    for option in options(wanted):
        if isinstance(option, Result) and _is_question(option.call):
            found.add(option.call.grad_mode)
        else:
            found.add({True: on, False: off, None: GradMode.OPEN}[truth(option)])
    return found.pop() if len(found) == 1 else GradMode.OPEN


def enter(walk: Walk, context: Value) -> None:
    """Switch to the mode inside of ``context``."""
    inside = mode_inside(walk, context)
    if inside is not None:
        walk.program.grad.current = GradState(inside)


def enter_decorators(walk: Walk, function: Function) -> bool:
    """Switch to the mode in which the decorators of ``function`` run its body; whether one of them switches it."""
    before = walk.program.grad.current
    for decorator in function.decorators:
        if isinstance(decorator, Ref):  # `@torch.no_grad` without a call
            mode = _of_torch(decorator.name, None)
            walk.program.grad.current = walk.program.grad.current if mode is None else GradState(mode)
        else:
            enter(walk, decorator)
    return walk.program.grad.current is not before


def leave(walk: Walk, context: Value, before: GradState) -> None:
    """Bring back the mode from ``before`` a `with` block, where its ``context`` does that."""
    grad = walk.program.grad
    for option in options(context):
        made = option.call.node if isinstance(option, Result) else None
        if made in grad.restored_by:
            grad.current = grad.restored_by.pop(made)
        elif _mode_of(walk, option) is not None:
            grad.current = before


def use_stack(walk: Walk, call: Call) -> None:
    """``stack.enter_context(torch.no_grad())``, ``stack.close()``, ``context.__enter__()`` and the like."""
    assert isinstance(call.func, Attr)
    grad, held = walk.program.grad, call.func.base
    match call.func.name, call.args:
        case (("enter_context" | "enter_async_context"), [entered, *_]):
            inside = mode_inside(walk, entered)
            if any(one(held, around) for around in walk.place.contexts):
                walk.entered_on_stack = (entered,)
        case "callback", [Ref(name), wanted, *_] if name.rpartition(".")[2] in _SETTERS:
            _restore_later(walk, held, GradState(_meant(wanted)))
            return
        case "__enter__", _:
            inside = mode_inside(walk, held)
        case (("close" | "__exit__"), _):
            leave(walk, held, grad.current)
            return
        case _:
            return
    if inside is not None:
        is_known = _restore_later(walk, held, grad.current)
        grad.current = GradState(inside if is_known else GradMode.OPEN)


def _restore_later(walk: Walk, holder: Value, state: GradState) -> bool:
    """Remember what leaving ``holder`` brings back; whether the program shows what it is."""
    if not isinstance(holder, Result):
        return False
    walk.program.grad.restored_by.setdefault(holder.call.node, state)
    return True


def note_yield(walk: Walk) -> None:
    """Remember the mode in which a generator hands over, for the `with` that enters what its call gave."""
    if walk.place.stack:
        grad = walk.program.grad
        grad.yielded_in.setdefault(walk.place.stack[-1], []).append(grad.switched_since(walk.begun_in))
