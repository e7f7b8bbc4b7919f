"""The part of a trace that makes the dropped packs again, given what is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tracing.ir import Ref
from ..tracing.op_arguments import instances_in
from ..untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..tracing.ir import Trace


@dataclass(frozen=True, slots=True)
class Slice:
    """Ops (by index, in program order) that make ``targets``, reading ``sources``: held buffers by index."""

    targets: tuple[Ref, ...]
    ops: tuple[int, ...]
    sources: tuple[int, ...]
    inputs: tuple[int, ...]
    parameters: tuple[int, ...]


def slice_for(trace: Trace, positions: Iterable[int], held: frozenset[int]) -> Slice:
    """The slice that rebuilds the packs at ``positions`` from ``held`` buffers, inputs and parameters.

    Raises UntraceableError when it would need an op that must not run twice.
    """
    targets = tuple(Ref(trace.packs[p].value, trace.packs[p].buffer) for p in positions)
    ops: set[int] = set()
    sources: set[int] = set()
    origins: dict[str, set[int]] = {"input": set(), "parameter": set(), "constant": set(), "op": set()}
    pending = list(targets)
    seen: set[Ref] = set()
    while pending:
        ref = pending.pop()
        if ref in seen:
            continue
        seen.add(ref)
        buffer = trace.buffers[ref.buffer]
        if ref.buffer in held:
            sources.add(ref.buffer)
            continue
        if buffer.origin.kind != "op":
            origins[buffer.origin.kind].add(buffer.origin.index)
        for op in _makers(trace, ref):
            if op not in ops:
                ops.add(op)
                pending.extend(_refs_of(trace, op))
                pending.extend(_draws_before(trace, op, ops))
    return Slice(
        targets, tuple(sorted(ops)), tuple(sorted(sources)),
        tuple(sorted(origins["input"])), tuple(sorted(origins["parameter"])),
    )  # fmt: skip


def _makers(trace: Trace, ref: Ref) -> Iterator[int]:
    """The op that made the tensor, and the one that last wrote its storage."""
    value = trace.values[ref.value]
    buffer = trace.buffers[ref.buffer]
    if value.producer is None and buffer.origin.kind == "op":
        value = trace.values[buffer.base]
    for op in {value.producer, buffer.producer}:
        if op is None:
            continue
        if trace.ops[op].obstacle:
            raise UntraceableError(trace.ops[op].obstacle)
        yield op


def _draws_before(trace: Trace, op: int, ops: set[int]) -> Iterator[Ref]:
    """What the draws read that must be repeated before ``op``; they are added to ``ops``."""
    draw = trace.ops[op].draw
    while draw is not None and draw.after and draw.previous not in ops:
        (previous,) = draw.after
        ops.add(previous)
        yield from _refs_of(trace, previous)
        draw = trace.ops[previous].draw


def _refs_of(trace: Trace, op: int) -> Iterator[Ref]:
    yield from instances_in(Ref, (trace.ops[op].args, trace.ops[op].kwargs))
