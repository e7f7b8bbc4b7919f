"""Traces shared by all layers and runs of a process: bounded, and safe to use from several threads.

They are not kept on disk. A trace holds for what its guards say, and these come from the Python code that ran: a kernel
package that patches a function of the modeling file, or another function registered for an attention implementation,
brings other branches on shapes, and no key made of classes, source files and versions would show it. The comparison at
the first use sees one shape only. Tracing a kind of layer again takes a process about a second.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .tracing import trace_call
from .untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import torch

    from .calls import LayerCall
    from .ir import Trace

_MAX_SIGNATURES = 256
#: Symbolic traces of one signature (each holds for other shapes), and traces a shape where symbols fail.
_MAX_SYMBOLIC = 8
_MAX_SHAPES = 32
#: Shapes whose trace is remembered; a forgotten one is matched against the guards again.
_MAX_BOUND = 1024


@dataclass
class _Entry:
    bound: dict[Hashable, tuple[Trace, dict[str, int]]] = field(default_factory=dict)
    symbolic: list[Trace] = field(default_factory=list)
    per_shape: dict[Hashable, Trace] = field(default_factory=dict)
    symbolic_obstacle: str = ""
    obstacle: str = ""


class TraceCache:
    """Finds or makes the trace for a signature. ``lookup`` returns it with the values of its symbols."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.RLock()

    def lookup(
        self, key: Hashable, shapes: Hashable, call: LayerCall, leaves: Sequence[torch.Tensor]
    ) -> tuple[Trace, dict[str, int]]:
        """The trace that holds for this call.

        Raises UntraceableError when there is none, or when the signature met more shapes than are worth tracing.
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > _MAX_SIGNATURES:
                self._entries.popitem(last=False)
            if entry.obstacle:
                raise UntraceableError(entry.obstacle)
            found = entry.bound.get(shapes)
            if found is None:
                found = self._symbolic(entry, call, leaves) or self._per_shape(entry, shapes, call)
                if len(entry.bound) >= _MAX_BOUND:
                    entry.bound.clear()
                entry.bound[shapes] = found
            return found

    def clear(self) -> None:
        """Forget every trace."""
        with self._lock:
            self._entries.clear()

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
        except UntraceableError as error:
            entry.symbolic_obstacle = error.reason
            return None
        entry.symbolic.append(trace)
        sizes = trace.guards.bind(leaves)
        assert sizes is not None
        return trace, sizes

    def _per_shape(self, entry: _Entry, shapes: Hashable, call: LayerCall) -> tuple[Trace, dict[str, int]]:
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


TRACES = TraceCache()
