"""Slices of lists and of module containers: `layers[1:]`, `self.net[:2]`."""

from __future__ import annotations

import ast
from copy import copy
from typing import TYPE_CHECKING

from ..values import Choice, Result, Seq, Unknown, Value, join, one_at
from .containers import another_list, container_kind, held_by, length_of

if TYPE_CHECKING:
    from ..values import Call


def slice_of(value: Value, index: ast.Slice, node: ast.Subscript) -> Value:
    """``value[index]``, which ``node`` writes: another list, or another container of the modules that it takes.

    Where the bounds, or all that is held, are not known, it takes each of several kinds under a condition.
    """
    if not isinstance(value, Result):
        return another_list(value)
    held = held_by(value)
    if not held or not isinstance(join(*held), Choice | Unknown):
        return value
    bounds = _bounds(index)
    if bounds is not None and length_of(value) == len(held):
        return _holding(value, held[bounds], is_all=True)
    return _holding(value, [one_at(node, ((module, ()) for module in held), node)], is_all=False)


def _bounds(index: ast.Slice) -> slice | None:
    """The slice, where its bounds are constants."""
    parts = (index.lower, index.upper, index.step)
    try:
        return slice(*(None if part is None else ast.literal_eval(part) for part in parts))
    except ValueError:
        return None


def _holding(container: Result, modules: list[Value], is_all: bool) -> Result:
    """A container like ``container`` that holds ``modules``."""
    call: Call = copy(container.call)
    call.spread, call.spread_count, call.open_args = [], 0 if is_all else None, not is_all
    is_sequential = container_kind(container) == "Sequential"
    call.args = modules if is_sequential else [Seq("list", modules, not is_all, call.node)]
    return Result(call, container.copied_by)
