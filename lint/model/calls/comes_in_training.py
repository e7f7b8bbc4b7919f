"""Whether a training step surely comes from a call of a module to a place in its methods."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.exclusion import parts_that_hold
from ...facts.identifiers import is_own_attribute
from ...facts.objects.attributes import get_attribute
from ...facts.values import Instance, truth
from ..conditions.guards import own_guards, tests_training

if TYPE_CHECKING:
    from collections.abc import Container

    from ...facts.values import Call, Guard, Place


def comes_in_training(call: Call, place: Place, changed: Container[str]) -> bool:
    """Whether nothing but train mode decides that ``call`` is made, and that its object comes to ``place``.

    Args:
        call: A call of a module.
        place: Somewhere in the methods that this runs.
        changed: The attributes that something else than a constructor sets.
    """
    module = call.func
    if not isinstance(module, Instance) or module.call is None or not all(map(tests_training, own_guards(call.place))):
        return False
    return all(_holds(guard, module, changed) for guard in place.guards)


def _holds(guard: Guard, module: Instance, changed: Container[str]) -> bool:
    parts = parts_that_hold(guard.test, guard.taken)
    return all(holds and _is_true(part, module, changed) for part, holds in parts)


def _is_true(part: ast.AST, module: Instance, changed: Container[str]) -> bool:
    match part:
        case ast.Call(func=ast.Attribute(attr="is_grad_enabled")):
            return True
    if not is_own_attribute(part):
        return False
    is_kept = part.attr not in changed
    return part.attr == "training" or (is_kept and truth(get_attribute(module, part.attr, None)) is True)
