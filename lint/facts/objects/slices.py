"""Parts of lists and of module containers by position: `layers[1:]`, `self.net[:2]`, `attention, mlp = block`."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from ..values import Attr, Choice, Const, Element, Instance, Result, Seq, Unknown, Value, join, one_at
from .containers import another_list, container_kind, held_by, is_module_list, length_of

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

    from ..values import Call


def slice_of(value: Value, bounds: slice | None, node: ast.expr) -> Value:
    """``value[bounds]``, which ``node`` writes: another list, or another container of the modules that it takes.

    Where the bounds, or all that is held, are not known, it takes each of several kinds under a condition.
    """
    if isinstance(value, Seq) and bounds is not None and not (value.open or value.optional or value.repeats):
        return Seq(value.kind, value.items[bounds], False, node, value.place)
    if isinstance(value, Attr) and bounds is not None:
        return Element(value, node, bounds=bounds)
    if not isinstance(value, Result):
        return another_list(value)
    held = held_by(value)
    if not held or not isinstance(join(*held), Choice | Unknown):
        return value
    if bounds is not None and length_of(value) == len(held):
        return _holding(value, held[bounds], is_all=True)
    return _holding(value, [one_at(node, ((module, ()) for module in held), node)], is_all=False)


def at_position(container: Value, position: int, node: ast.AST | None, length: int | None = None) -> Value | None:
    """The element at ``position`` of a list, or of a module container, of ``length`` where that is known.

    One of those that it holds, each under a condition, where their order is open; None where they are not known, or
    are alike.
    """
    held = container.items if isinstance(container, Seq) else held_by(container) if is_module_list(container) else []
    if not held or node is None or any(isinstance(module, Element) for module in held):
        return None
    present = _present(container, held, length)
    if present is not None:
        return present[position] if -len(present) <= position < len(present) else None
    if len(held) > 1 and _are_alike(held):
        return None
    return held[0] if len(held) == 1 else one_at(node, ((module, ()) for module in held), node)


def standing_at(container: Value, position: int) -> Value | None:
    """What certainly stands at ``position`` of a list or a module container; None where that is open."""
    if isinstance(container, Seq):
        items = [] if container.open or container.optional or container.repeats else container.items
    else:
        items = held_by(container) if is_module_list(container) else []
        items = items if length_of(container) == len(items) else []
    return items[position] if -len(items) <= position < len(items) else None


def put_at(container: Seq | Result, position: int, value: Value) -> None:
    """Put ``value`` at a position where it is known what stands there."""
    if isinstance(container, Seq):
        container.items[position] = value
        return
    call, held = container.call, list(held_by(container))
    held[position] = value
    is_sequential = container_kind(container) == "Sequential"
    call.args, call.spread, call.spread_count = held if is_sequential else [Seq("list", held, False, call.node)], [], 0


def _are_alike(modules: list[Value]) -> bool:
    """Whether all are objects of one class: what holds for one of them holds at any position."""
    first = modules[0]
    return isinstance(first, Instance) and all(
        isinstance(module, Instance) and module.cls is first.cls for module in modules
    )


def _present(container: Value, held: list[Value], length: int | None) -> list[Value] | None:
    """The elements in their order; None where it is open which of ``held`` there are, or how many of each."""
    if length_of(container) == len(held):
        return held
    listed = container.call.args[0] if isinstance(container, Result) and container.call.args else container
    if length is None or not isinstance(listed, Seq) or listed.repeats or len(listed.items) != len(held):
        return None
    certain = [module for index, module in enumerate(held) if index not in listed.optional]
    return held if length == len(held) else certain if length == len(certain) else None


def bounds_of(parts: Iterable[Value]) -> slice | None:
    """The slice with these bounds, a lower one, an upper one and a step; None where one of them is not known."""
    known = [part.value for part in parts if isinstance(part, Const)]
    are_numbers = len(known) == 3 and all(value is None or type(value) is int for value in known)
    return slice(*known) if are_numbers and known[2] != 0 else None


def _holding(container: Result, modules: list[Value], is_all: bool) -> Result:
    """A container like ``container`` that holds ``modules``."""
    call: Call = copy(container.call)
    call.spread, call.spread_count, call.open_args = [], 0 if is_all else None, not is_all
    is_sequential = container_kind(container) == "Sequential"
    call.args = modules if is_sequential else [Seq("list", modules, not is_all, call.node)]
    return Result(call, container.copied_by)
