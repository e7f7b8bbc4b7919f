"""Reading a property of the program's own: a call of the function behind it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..objects.classes import ancestors, decorator_names
from ..values import Call, Function, Instance, Method, Unknown, Value
from .following import MAX_DEPTH, MAX_WALKS

if TYPE_CHECKING:
    from ..walk import Walk

_DECORATORS = frozenset(("property", "cached_property"))


def read_property(walk: Walk, base: Value, node: ast.Attribute) -> Value | None:
    """What ``node`` gives where a property of the class of ``base`` computes it; None for anything else.

    A property is read far more often than a function is called: beyond the limits it is left as it is, and no call
    counts as one that was not followed.
    """
    function = _property_of(base, node.attr)
    if function is None or walk.program.followed.get(function.node, 0) >= MAX_WALKS:
        return None
    written = walk.program.property_reads.setdefault(node, _as_call(node))
    if written in walk.place.stack or len(walk.place.stack) >= MAX_DEPTH:
        return None
    call = Call(written, Method(base, function, node), walk.place, walk.program.next_order())
    call.grad = walk.program.grad.current
    walk.program.calls.append(call)
    given = walk.follow(function, call, base)
    return None if type(given) is Unknown else given


def _property_of(base: Value, name: str) -> Function | None:
    if not isinstance(base, Instance):
        return None
    found = next((cls.body[name] for cls in (base.cls, *ancestors(base.cls)) if name in cls.body), None)
    if not isinstance(found, Function) or len(found.decorators) != 1:
        return None
    return found if any(it.rpartition(".")[2] in _DECORATORS for it in decorator_names(found)) else None


def _as_call(node: ast.Attribute) -> ast.Call:
    return ast.copy_location(ast.Call(node, [], []), node)
