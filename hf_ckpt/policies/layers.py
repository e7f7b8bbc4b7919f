"""``full``, ``none``, ``first(n)``, ``last(n)``, ``every(k)``, ``layers(0-7,12)``: recompute whole decoder layers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import PolicyError
from ..policy.base import CountedLayers, LayerSelector, Policy, positive_int
from ..policy.decision import Keep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.decision import Decision, Stack

_RANGE = re.compile(r"(\d+)(?:(-)(\d*))?$")


@dataclass(frozen=True, slots=True)
class Full(LayerSelector):
    """Keep only each layer's inputs, and recompute the rest.

    With L layers, of which one holds I bytes inside and B at its boundary, the peak is L*B + I.
    """

    name: ClassVar[str] = "full"

    def select(self, stack: Stack) -> frozenset[int]:
        """Every layer."""
        return frozenset(range(len(stack.layers)))


@dataclass(frozen=True, slots=True)
class NonePolicy(Policy):
    """Keep everything: no activation checkpointing."""

    name: ClassVar[str] = "none"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer keeps everything."""
        return {layer.index: Keep() for layer in stack.layers}


@dataclass(frozen=True, slots=True)
class First(CountedLayers):
    """Recompute the first n layers: their saved tensors live longest, as backward uses them last."""

    name: ClassVar[str] = "first"
    usage: ClassVar[str] = "first(8)"

    def select(self, stack: Stack) -> frozenset[int]:
        """The first n layers, or all when there are fewer."""
        return frozenset(range(min(self.n, len(stack.layers))))


@dataclass(frozen=True, slots=True)
class Last(CountedLayers):
    """Recompute the last n layers: backward replays them first, while every other one still holds its saved tensors."""

    name: ClassVar[str] = "last"
    usage: ClassVar[str] = "last(8)"

    def select(self, stack: Stack) -> frozenset[int]:
        """The last n layers, or all when there are fewer."""
        return frozenset(range(max(0, len(stack.layers) - self.n), len(stack.layers)))


@dataclass(frozen=True, slots=True)
class Every(LayerSelector):
    """Recompute layers 0, k, 2k, ... of the stack; the others keep everything.

    This is not segment checkpointing (see ``segments``): with L layers, B bytes at a boundary and I inside a layer it
    holds ``ceil(L/k) * B + (L - ceil(L/k)) * I``, so a larger k holds *more*. Counting is per tower, so a vision tower
    never shifts which language layers are chosen.

    Args:
        k: The distance between two recomputed layers, 1 or more.
    """

    name: ClassVar[str] = "every"
    usage: ClassVar[str] = "every(2)"
    k: int

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """One whole number above 0."""
        return cls(positive_int(cls.name, arguments))

    def arguments(self) -> tuple[str, ...]:
        """``k``."""
        return (str(self.k),)

    def select(self, stack: Stack) -> frozenset[int]:
        """Every k-th layer, from the first."""
        return frozenset(range(0, len(stack.layers), self.k))


@dataclass(frozen=True, slots=True)
class Layers(LayerSelector):
    """Recompute the layers of these indices and ranges, counted from 0 within the stack.

    ``a-b`` includes both ends, ``a-`` runs to the end.

    Args:
        ranges: (first, last) pairs, both included; last is None for a range that runs to the end.
    """

    name: ClassVar[str] = "layers"
    usage: ClassVar[str] = "layers(0-7,12)"
    ranges: tuple[tuple[int, int | None], ...]

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """One or more of ``7``, ``0-7``, ``8-``."""
        if not arguments:
            raise PolicyError("policy `layers` needs indices: write for example `layers(0-7,12)`")
        return cls(tuple(_parse_range(a) for a in arguments))

    def arguments(self) -> tuple[str, ...]:
        """The ranges as written."""
        return tuple(_write_range(first, last) for first, last in self.ranges)

    def select(self, stack: Stack) -> frozenset[int]:
        """The named layers that the stack has."""
        count = len(stack.layers)
        ends = ((first, count - 1 if last is None else last) for first, last in self.ranges)
        return frozenset(index for first, end in ends for index in range(first, min(end + 1, count)))

    def missing(self, stack: Stack) -> str:
        """The highest index that the stack does not have."""
        highest, count = max(first if last is None else last for first, last in self.ranges), len(stack.layers)
        if highest < count:
            return ""
        return f"policy `{self}` names layer {highest}, but {stack.name} has {count} layers: 0 to {count - 1}"


def _parse_range(text: str) -> tuple[int, int | None]:
    match = _RANGE.match(text)
    if match is None:
        raise PolicyError(f"`{text}` in `layers(...)` is not an index (`12`) or a range (`0-7`, `8-`)")
    first = int(match[1])
    if match[2] is None:
        return first, first
    last = int(match[3]) if match[3] else None
    if last is not None and last < first:
        raise PolicyError(f"the range `{text}` in `layers(...)` runs backwards: write `{last}-{first}`")
    return first, last


def _write_range(first: int, last: int | None) -> str:
    if last is None:
        return f"{first}-"
    return str(first) if first == last else f"{first}-{last}"
