"""Arguments of the command line that functions of the project get whose modules are not read: they may set any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..objects.parsers import Namespace
from ..values import UNKNOWN, Const, Ref, Result, join

if TYPE_CHECKING:
    from ..values import Call, Value
    from ..walk import Walk

#: Functions by whose names it is something else that they set, or nothing.
_SETS_OTHERS = re.compile(r"seed|random|log|print|show|dump|save|dist|ddp|rank|device|cuda|slurm|wandb|writer|dirs?\Z")


def leave_open(walk: Walk, value: Value) -> None:
    """What the statement `update_args(args)` leaves in ``args`` is open, where that runs code which is not read.

    Args:
        walk: Where the statement is.
        value: What it gives.
    """
    if not walk.program.command_read or not isinstance(value, Result):
        return
    call = value.call
    given = [it for it in (*call.args, *call.kwargs.values()) if isinstance(it, Namespace)]
    if given and _is_unread(walk, call) and _SETS_OTHERS.search(call.called.lower()) is None:
        for namespace in given:
            forget(namespace)


def forget(namespace: Namespace) -> None:
    """Any attribute of ``namespace`` may hold something else from now on."""
    for name, value in (namespace.attributes or {}).items():
        if isinstance(value, Const):
            (namespace.attributes or {})[name] = join(value, UNKNOWN)


def _is_unread(walk: Walk, call: Call) -> bool:
    """Whether ``call`` runs a function of the project whose module is not read."""
    find = walk.program.find_module
    if find is None or not isinstance(call.func, Ref):
        return False
    module = call.func.name
    while module.strip("."):
        if find(module) is not None:
            return True
        module = module.rpartition(".")[0]
    return False
