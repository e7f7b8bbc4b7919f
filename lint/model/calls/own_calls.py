"""Whether a call of a module comes to the `forward` of its class with the arguments as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.values import Attr, Class, Instance, Method, Partial, Ref, Value
from ..names import canonical

if TYPE_CHECKING:
    from ..run import Run

#: Hooks that may replace the arguments of a module, or of all modules.
_PRE_HOOKS = ("register_forward_pre_hook", "register_module_forward_pre_hook")


def is_called_as_written(run: Run, called: Value) -> bool:
    """Whether a call of ``called`` hands its arguments to the function that the file shows, as they are.

    False for a module with a `__call__` of its own, and when the program replaces a method of this name or registers
    forward pre-hooks, on whatever object.
    """
    match called:
        case Partial(func=inner) | Attr(base=inner, name="forward" | "__call__"):
            return is_called_as_written(run, inner)
        case Method(_, function):
            return not _is_replaced(run, function.name)
        case Instance(cls):
            return _keeps_call_of_torch(cls) and not _is_replaced(run, "forward") and not _has_pre_hooks(run)
    return True


def _keeps_call_of_torch(cls: Class) -> bool:
    family = (cls, *ancestors(cls))
    plain = all("__call__" not in owner.body and not owner.node.decorator_list for owner in family)
    return plain and all(_is_shown(base) for owner in family for base in owner.bases)


def _is_shown(base: Value) -> bool:
    return isinstance(base, Class) or (isinstance(base, Ref) and canonical(base.name).startswith("torch.nn."))


def _is_replaced(run: Run, method: str) -> bool:
    """Whether the program assigns a field ``method`` or `__call__`, of an object or a class."""
    return any(write.field in (method, "__call__") for write in run.writes if not write.is_item)


def _has_pre_hooks(run: Run) -> bool:
    return any(call.called in _PRE_HOOKS for call in run.program.calls)
