"""Traces shared by all layers and runs of a process: bounded, and safe to use from several threads.

They are not kept on disk. A trace holds for what its guards say, and these come from the Python code that ran: a kernel
package that patches a function of the modeling file, or another function registered for an attention implementation,
brings other branches on shapes, and no key made of classes, source files and versions would show it. The comparison at
the first use sees one shape only. Tracing a kind of layer again takes a process about a second.

An int among the arguments is part of the signature by value until it differs from call to call (``max_length_q`` of a
padding-free batch differs nearly every step). Then the layer is traced twice, with the ints and with symbols in their
place. If both traces record the same, no op, size, constant or branch reads them, and the trace is every value's.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from .tracing import trace_call
from .untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import torch

    from .calls import LayerCall
    from .ir import Trace

_T = TypeVar("_T")

_MAX_SIGNATURES = 256
#: Symbolic traces of one signature (each holds for other shapes), and traces a shape where symbols fail.
_MAX_SYMBOLIC = 8
_MAX_SHAPES = 32
#: Shapes whose trace is remembered; a forgotten one is matched against the guards again.
_MAX_BOUND = 1024


@dataclass
class Numbers:
    """The ints in the calls of one signature; ``varying`` are the positions that differed from the ``first`` call."""

    first: tuple[int, ...]
    varying: frozenset[int] = frozenset()
    matter: bool = False

    def free(self, values: tuple[int, ...]) -> frozenset[int]:
        """The positions whose value may be left out of the signature, if the trace reads none of them."""
        self.varying |= {i for i, pair in enumerate(zip(self.first, values, strict=True)) if pair[0] != pair[1]}
        return frozenset() if self.matter else self.varying

    def distrust(self) -> bool:
        """Trace by value from now on; returns whether that is a change."""
        changed = bool(self.varying) and not self.matter
        self.matter |= changed
        return changed


@dataclass
class _Entry:
    free: frozenset[int] = frozenset()
    bound: dict[Hashable, tuple[Trace, dict[str, int]]] = field(default_factory=dict)
    symbolic: list[Trace] = field(default_factory=list)
    per_shape: dict[Hashable, Trace] = field(default_factory=dict)
    symbolic_obstacle: str = ""
    obstacle: str = ""


class TraceCache:
    """Finds or makes the trace for a signature. ``lookup`` returns it with the values of its symbols."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._numbers: OrderedDict[Hashable, Numbers] = OrderedDict()
        self._lock = threading.RLock()

    def numbers(self, key: Hashable, values: tuple[int, ...]) -> Numbers:
        """What is known about the ints in the calls of a signature; ``values`` are those of one call."""
        with self._lock:
            return _remembered(self._numbers, key, lambda: Numbers(values))

    def lookup(
        self,
        key: Hashable,
        values: tuple[int, ...],
        shapes: Hashable,
        call: LayerCall,
        leaves: Sequence[torch.Tensor],
    ) -> tuple[Trace, dict[str, int]]:
        """The trace that holds for this call. ``key`` is its signature without its ints, which are ``values``.

        Raises UntraceableError when there is none, or when the signature met more shapes than are worth tracing.
        """
        with self._lock:
            numbers = self.numbers(key, values)
            free = numbers.free(values)
            if free:
                try:
                    return self._find(self._entry(key, values, free), shapes, call, leaves)
                except UntraceableError:
                    numbers.matter = True
            return self._find(self._entry(key, values, frozenset()), shapes, call, leaves)

    def clear(self) -> None:
        """Forget every trace."""
        with self._lock:
            self._entries.clear()
            self._numbers.clear()

    def _entry(self, key: Hashable, values: tuple[int, ...], free: frozenset[int]) -> _Entry:
        fixed = tuple(None if i in free else value for i, value in enumerate(values))
        return _remembered(self._entries, (key, fixed), lambda: _Entry(free))

    def _find(
        self, entry: _Entry, shapes: Hashable, call: LayerCall, leaves: Sequence[torch.Tensor]
    ) -> tuple[Trace, dict[str, int]]:
        if entry.obstacle:
            raise UntraceableError(entry.obstacle)
        found = entry.bound.get(shapes)
        if found is None:
            found = self._symbolic(entry, call, leaves) or self._per_shape(entry, shapes, call)
            if len(entry.bound) >= _MAX_BOUND:
                entry.bound.clear()
            entry.bound[shapes] = found
        return found

    def _symbolic(
        self, entry: _Entry, call: LayerCall, leaves: Sequence[torch.Tensor]
    ) -> tuple[Trace, dict[str, int]] | None:
        for trace in entry.symbolic:
            sizes = trace.guards.bind(leaves)
            if sizes is not None:
                return trace, sizes
        if entry.symbolic_obstacle or len(entry.symbolic) >= _MAX_SYMBOLIC:
            return None
        try:
            trace = trace_call(call)
            if entry.free and not trace.same_as(trace_call(call, free=entry.free)):
                raise UntraceableError("it depends on an int among its arguments")
        except UntraceableError as error:
            entry.symbolic_obstacle = error.reason
            return None
        entry.symbolic.append(trace)
        sizes = trace.guards.bind(leaves)
        assert sizes is not None
        return trace, sizes

    def _per_shape(self, entry: _Entry, shapes: Hashable, call: LayerCall) -> tuple[Trace, dict[str, int]]:
        if entry.free:
            raise UntraceableError("only a symbolic trace can show that an int is not read")
        trace = entry.per_shape.get(shapes)
        if trace is None:
            if len(entry.per_shape) >= _MAX_SHAPES:
                raise UntraceableError(f"it met more than {_MAX_SHAPES} shapes, and each needs its own trace")
            try:
                trace = trace_call(call, symbolic=False)
            except UntraceableError as error:
                if not entry.per_shape:
                    entry.obstacle = error.reason
                raise
            entry.per_shape[shapes] = trace
        return trace, {}


def _remembered(table: OrderedDict[Hashable, _T], key: Hashable, make: Callable[[], _T]) -> _T:
    """The entry of a bounded table, made when it is missing; the entry not asked for the longest goes."""
    entry = table.get(key)
    if entry is None:
        entry = table[key] = make()
    table.move_to_end(key)
    while len(table) > _MAX_SIGNATURES:
        table.popitem(last=False)
    return entry


TRACES = TraceCache()
