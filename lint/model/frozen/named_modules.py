"""The modules in an object of the program, by the names that lead to them."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from ...facts.objects.classes import ancestors
from ...facts.objects.containers import container_kind, held_by
from ...facts.values import Instance, Result, Value, options
from .module_loops import passes_in_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Place
    from ...facts.walk import Program
    from .module_loops import ModuleLoop

#: How deep modules of the program are looked into, and how many are told apart.
DEPTH, MOST = 5, 2_000
_Chain: TypeAlias = "tuple[tuple[str, Value], ...]"
#: How many layers of a list a test may ask for by their number.
_LAYERS = 48
_LAYER = re.compile(r"(^|\.)0(?=\.|$)")


@lru_cache(maxsize=4)
def chains_in(whole: Instance) -> tuple[tuple[tuple[str, Value], ...], ...]:
    """The ways to the modules in ``whole``, by the names and the modules on them; none where they are too many."""
    found = tuple(islice(_ways(whole, (), DEPTH), MOST + 1))
    return found if len(found) <= MOST else ()


def passing_in_loop(program: Program, place: Place, found: ModuleLoop) -> Iterator[Value]:
    """The modules that a loop over the modules of an object certainly comes to with ``place``.

    A list that a comprehension makes is one module here: which of its layers a number asks for is not told apart.
    """
    chains = [chain for chain in chains_in(found.whole) if len(chain) == 1 or not found.is_direct]
    for chain in chains:
        ways = [chain, *(renamed for number in range(1, _LAYERS) if (renamed := _numbered(chain, number)) != chain)]
        if any(passes_in_loop(program, place, found, way[-1:]) for way in ways):
            yield chain[-1][1]


def _numbered(chain: _Chain, number: int) -> _Chain:
    """``chain`` with the ``number`` of the layer in its names."""
    return tuple((_LAYER.sub(rf"\g<1>{number}", name, count=1), part) for name, part in chain)


def _ways(outer: Value, way: tuple[tuple[str, Value], ...], depth: int) -> Iterator[tuple[tuple[str, Value], ...]]:
    for name, held in parts_of(outer) if depth else ():
        path = f"{way[-1][0]}.{name}" if way else name
        for option in options(held):
            inner = (*way, (path, option))
            if isinstance(option, Result | Instance):
                yield inner
            if not isinstance(option, Result) or container_kind(option):
                yield from _ways(option, inner, depth - 1)


def parts_of(outer: Value) -> Iterator[tuple[str, Value]]:
    """What ``outer`` holds itself, by its names; one for all of a list that a comprehension makes."""
    if container_kind(outer):
        yield from ((str(index), held) for index, held in enumerate(held_by(outer)))
    elif isinstance(outer, Instance):
        for owner in (outer.cls, *ancestors(outer.cls)):
            yield from owner.fields.items()
