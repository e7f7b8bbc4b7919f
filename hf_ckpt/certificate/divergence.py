"""Compares the operators of a checkpointed forward with those of its recompute: pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..doctor.place import Place

#: Operators that come and go with grad mode, autocast and its cache, and compute nothing.
_SILENT = frozenset({"aten.detach.default", "aten.alias.default", "aten._to_copy.default", "aten.lift_fresh.default"})


class Way(Enum):
    """How a recompute left the way of its forward."""

    PATH = auto()
    PARAMETER = auto()
    TENSOR = auto()
    VALUE = auto()
    DRAWN = auto()
    RESULT = auto()


@dataclass(frozen=True, slots=True)
class Outside:
    """A tensor that an operator reads and none before it made: its name on the model, or "", and its contents."""

    name: str
    contents: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operator that ran.

    Attributes:
        name: Such as ``aten.mul.Tensor``.
        outside: What it read from outside the checkpointed function.
        values: Its arguments that are no tensors.
        results: The contents of what it made.
        draws: Whether it draws random numbers.
        module: The module whose forward called it; "" for none.
        place: The innermost line of the user's code; None where none is on the stack.
    """

    name: str
    outside: tuple[Outside, ...] = ()
    values: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    draws: bool = False
    module: str = ""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first operator whose recompute differs: as it ran in the forward, as in the recompute (None: it did not)."""

    way: Way
    forward: Op
    again: Op | None


def first_divergence(forward: Sequence[Op], again: Sequence[Op]) -> Divergence | None:
    """The first difference; a recompute may end early, as torch's does once it has all that was saved."""
    before = [op for op in forward if op.name not in _SILENT]
    after = [op for op in again if op.name not in _SILENT]
    for one, other in zip(before, after, strict=False):
        way = _way(one, other)
        if way is not None:
            return Divergence(way, one, other)
    if len(after) > len(before):
        return Divergence(Way.PATH, after[len(before)], None)
    return None


def _way(one: Op, other: Op) -> Way | None:
    if one.name != other.name or len(one.outside) != len(other.outside):
        return Way.PATH
    pairs = list(zip(one.outside, other.outside, strict=True))
    if any(a.name != b.name for a, b in pairs):
        return Way.PARAMETER
    if any(a.contents != b.contents for a, b in pairs):
        return Way.TENSOR
    if one.values != other.values:
        return Way.VALUE
    if one.results != other.results:
        return Way.DRAWN if one.draws else Way.RESULT
    return None
