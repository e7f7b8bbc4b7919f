"""Values that equal ops make of the same arguments: a rebuild makes one of them (codegen.py)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..tracing.ir import Ref, SizeRef

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..tracing.ir import Trace, TracedOp


def twins_in(trace: Trace) -> dict[int, int]:
    """For each buffer that an earlier op makes too, the buffer that the first of them makes, where that is saved."""
    versions = Counter(buffer.storage for buffer in trace.buffers)
    written_again = {storage for storage, count in versions.items() if count > 1}
    first: dict[Hashable, int] = {}
    twin_of: dict[int, int] = {}  # by value
    for op in trace.ops:
        made = op.outputs[0] if op.single else None
        storages = {trace.buffers[buffer].storage for buffer in (*op.reads, *op.writes)}
        if made is None or op.draw is not None or not storages.isdisjoint(written_again):
            continue
        known = first.setdefault(_key(op, twin_of), made)
        if known != made:
            twin_of[made] = known
    pairs = ((trace.values[a].buffer, trace.values[b].buffer) for a, b in twin_of.items())
    saved = {pack.buffer for pack in trace.packs}
    return {ours: theirs for ours, theirs in pairs if ours != theirs and theirs in saved}


def _key(op: TracedOp, twin_of: dict[int, int]) -> Hashable:
    def plain(item: Any) -> Hashable:
        if isinstance(item, Ref):
            return Ref, twin_of.get(item.value, item.value)
        if isinstance(item, SizeRef):
            return SizeRef, str(item.size)
        if isinstance(item, tuple | list):
            return type(item), tuple(map(plain, item))
        return type(item), repr(item)

    return op.target, plain(op.args), tuple((name, plain(item)) for name, item in sorted(op.kwargs.items()))
