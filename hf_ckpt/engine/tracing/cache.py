"""Traces shared by all layers and runs of a process: bounded, and safe to use from several threads.

They are not kept on disk. A trace holds for what its guards say, and these come from the Python code that ran: a kernel
package that patches a function of the modeling file, or another function registered for an attention implementation,
brings other branches on shapes, and no key made of classes, source files and versions would show it. The comparison at
the first use sees one shape only. Tracing a kind of layer again takes a process about a second.

An int among the arguments is part of the signature by value until it differs from call to call (``max_length_q`` of a
padding-free batch differs nearly every step). Then it is traced as a symbol: an op's argument keeps the symbol, and a
branch on it is a guard.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..untraceable import UntraceableError
from .trace_call import trace_call

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import torch

    from ..layer.calls import LayerCall
    from .ir import Trace

_T = TypeVar("_T")

_MAX_SIGNATURES = 256
#: Symbolic traces of one signature (each holds for other shapes), and traces a shape where symbols fail.
_MAX_SYMBOLIC = 8
_MAX_SHAPES = 32
#: Shapes at which a symbolic trace may differ from the run when it never agreed.
_MAX_UNPROVEN = 2
#: Shapes whose trace is remembered; a forgotten one is matched against the guards again.
_MAX_BOUND = 1024


@dataclass(frozen=True, slots=True)
class Signature:
    """What one call is known by: ``key`` without its ints, the ints (``values``), and ``shapes`` with everything."""

    key: Hashable
    values: tuple[int, ...]
    shapes: Hashable


@dataclass
class _Numbers:
    """The ints in the calls of one key; ``varying`` are the positions that differed from the ``first`` call."""

    first: tuple[int, ...]
    varying: frozenset[int] = frozenset()
    by_value: bool = False

    def free(self, values: tuple[int, ...]) -> frozenset[int]:
        """The positions that are symbols in a trace."""
        self.varying |= {i for i, pair in enumerate(zip(self.first, values, strict=True)) if pair[0] != pair[1]}
        return frozenset() if self.by_value else self.varying


@dataclass
class _Entry:
    free: frozenset[int] = frozenset()
    bound: dict[Hashable, tuple[Trace, dict[str, int]]] = field(default_factory=dict)
    symbolic: list[Trace] = field(default_factory=list)
    per_shape: dict[Hashable, Trace] = field(default_factory=dict)
    #: Shapes at which a symbolic trace was seen to differ from the run.
    mismatched: set[Hashable] = field(default_factory=set)
    symbolic_obstacle: str = ""
    obstacle: str = ""
    #: Whether the obstacle is one in every other entry of the same layer too.
    is_final: bool = False


class TraceCache:
    """Finds or makes the trace for a signature. ``lookup`` returns it with the values of its symbols."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._numbers: OrderedDict[Hashable, _Numbers] = OrderedDict()
        self._lock = threading.RLock()

    def lookup(
        self, signature: Signature, call: LayerCall, leaves: Sequence[torch.Tensor]
    ) -> tuple[Trace, dict[str, int]]:
        """The trace that holds for this call.

        Raises UntraceableError when there is none, or when the signature met more shapes than are worth tracing.
        """
        with self._lock:
            entry = self._entry(signature)
            if entry.free:
                try:
                    return self._find(entry, signature, call, leaves)
                except UntraceableError as error:
                    if error.is_final:
                        raise
                    self._numbers_of(signature).by_value = True
                    entry = self._entry(signature)
            return self._find(entry, signature, call, leaves)

    def distrust(self, signature: Signature, trace: Trace) -> bool:
        """The run differs from ``trace``: another one answers this call from now on. Returns False if there is none."""
        with self._lock:
            entry = self._entry(signature)
            if entry.free:
                self._numbers_of(signature).by_value = True
                return True
            if not trace.symbolic or signature.shapes in entry.mismatched:
                return False
            proven = any(recipe.proven for recipe in trace.recipes.values())
            if len(entry.mismatched) >= (_MAX_SHAPES if proven else _MAX_UNPROVEN):
                entry.symbolic_obstacle = "its symbolic traces differ from what it does"
                entry.symbolic = [known for known in entry.symbolic if known is not trace]
            entry.mismatched.add(signature.shapes)
            entry.bound.pop(signature.shapes, None)
            return True

    def clear(self) -> None:
        """Forget every trace."""
        with self._lock:
            self._entries.clear()
            self._numbers.clear()

    def _numbers_of(self, signature: Signature) -> _Numbers:
        return _remembered(self._numbers, signature.key, lambda: _Numbers(signature.values))

    def _entry(self, signature: Signature) -> _Entry:
        free = self._numbers_of(signature).free(signature.values)
        fixed = tuple(None if i in free else value for i, value in enumerate(signature.values))
        return _remembered(self._entries, (signature.key, fixed), lambda: _Entry(free))

    def _find(
        self, entry: _Entry, signature: Signature, call: LayerCall, leaves: Sequence[torch.Tensor]
    ) -> tuple[Trace, dict[str, int]]:
        if entry.obstacle:
            raise UntraceableError(entry.obstacle, is_final=entry.is_final)
        found = entry.bound.get(signature.shapes)
        if found is None:
            found = self._symbolic(entry, signature, call, leaves) or self._per_shape(entry, signature.shapes, call)
            if len(entry.bound) >= _MAX_BOUND:
                entry.bound.clear()
            entry.bound[signature.shapes] = found
        return found

    def _symbolic(
        self, entry: _Entry, signature: Signature, call: LayerCall, leaves: Sequence[torch.Tensor]
    ) -> tuple[Trace, dict[str, int]] | None:
        if signature.shapes in entry.mismatched:
            return None
        for trace in entry.symbolic:
            sizes = trace.guards.bind(leaves, signature.values)
            if sizes is not None:
                return trace, sizes
        if entry.symbolic_obstacle or len(entry.symbolic) >= _MAX_SYMBOLIC:
            return None
        try:
            trace = _symbolic_trace(call, entry.free)
        except UntraceableError as error:
            entry.symbolic_obstacle = error.reason
            if error.is_final:
                entry.obstacle, entry.is_final = error.reason, True
                raise
            return None
        entry.symbolic.append(trace)
        sizes = trace.guards.bind(leaves, signature.values)
        assert sizes is not None
        return trace, sizes

    def _per_shape(self, entry: _Entry, shapes: Hashable, call: LayerCall) -> tuple[Trace, dict[str, int]]:
        if entry.free:
            raise UntraceableError("only a symbolic trace holds for several ints")
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


def _symbolic_trace(call: LayerCall, free: frozenset[int]) -> Trace:
    """The trace that fixes the fewest sizes: composite ops as the run takes them apart, or else as Python does."""
    attempts: list[Trace] = []
    obstacles: list[str] = []  # their reasons: an error and this frame would hold each other, and the model's forward
    for in_python in (False, True):
        try:
            trace = trace_call(call, free=free, in_python=in_python)
        except UntraceableError as error:
            if error.is_final:
                raise
            obstacles.append(error.reason)
            continue
        if not trace.guards.fixed:
            return trace
        attempts.append(trace)
    if not attempts:
        raise UntraceableError(obstacles[0])
    return min(attempts, key=lambda trace: trace.guards.fixed)


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
