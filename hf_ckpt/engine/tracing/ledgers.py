"""The ledger of a trace: what the planner solves over, at given shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ...ledger import Buffer, LayerLedger, Op, Source
from ..recipes.twins import twins_in
from .symbols import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ir import Buffer as TracedBuffer
    from .ir import Trace, TracedOp

#: Ledgers that a trace remembers.
_MAX_SIZES = 64
_SOURCES = {"input": Source.INPUT, "parameter": Source.PARAMETER, "constant": Source.INPUT}


@dataclass(frozen=True, slots=True)
class SizedTrace:
    """A symbolic trace with the values that its symbols had in one call: what the layer saves at other ones."""

    trace: Trace
    sizes: Mapping[str, int]

    def ledger(self) -> LayerLedger:
        """What that call saved."""
        return ledger_at(self.trace, self.sizes)

    def ledger_at(self, sizes: Mapping[str, int]) -> LayerLedger | None:
        """What a call with these values of the symbols will save; None where it needs another trace."""
        return ledger_at(self.trace, sizes) if self.trace.guards.hold_for(sizes) else None


def ledger_at(trace: Trace, sizes: Mapping[str, int]) -> LayerLedger:
    """The ledger of ``trace`` with its symbols at ``sizes``. Buffer and op indices are those of the trace.

    A constant the layer makes from Python numbers counts as an input: it is there anyway. Views are no ops.
    """
    key = tuple(sizes.values())
    known = trace.ledgers.get(key)
    if known is None:
        if len(trace.ledgers) >= _MAX_SIZES:
            trace.ledgers.clear()
        known = trace.ledgers[key] = _ledger(trace, sizes)
    return known


def _ledger(trace: Trace, sizes: Mapping[str, int]) -> LayerLedger:
    saved: dict[int, list[int]] = {}
    for pack in trace.packs:
        saved.setdefault(pack.buffer, []).append(pack.position)
    twins = twins_in(trace)
    buffers = [
        replace(_buffer(trace, b, tuple(saved.get(b.index, ())), sizes), twin=twins.get(b.index)) for b in trace.buffers
    ]
    ops = tuple(_op(op, buffers, sizes) for op in trace.ops)
    draws = frozenset(op.index for op in trace.ops if op.draw is not None)
    return _with_random(LayerLedger(trace.class_name, tuple(buffers), ops), draws)


def _buffer(trace: Trace, buffer: TracedBuffer, saved: tuple[int, ...], sizes: Mapping[str, int]) -> Buffer:
    base = trace.values[buffer.base]
    source = _SOURCES.get(buffer.origin.kind, Source.ACTIVATION)
    if source is Source.ACTIVATION and buffer.producer is not None:
        op = trace.ops[buffer.producer]
        seeded = torch.Tag.nondeterministic_seeded in getattr(op.target, "tags", ())
        if seeded and op.draw is None and not base.dtype.is_floating_point:
            source = Source.ONCE  # the seed of a dropout that did not happen: nobody wrote it
    return Buffer(
        index=buffer.index,
        nbytes=evaluate(buffer.nbytes, sizes),
        source=source,
        producer=buffer.producer,
        saved=saved,
        shape=tuple(evaluate(size, sizes) for size in base.shape),
        dtype=str(base.dtype).removeprefix("torch."),
    )


def _op(op: TracedOp, buffers: list[Buffer], sizes: Mapping[str, int]) -> Op:
    outputs = () if op.is_view else op.writes
    traffic = 0 if op.is_view else sum(buffers[b].nbytes for b in (*op.reads, *outputs))
    flops = evaluate(op.flops, sizes)
    after = op.draw.after if op.draw is not None else ()
    rebuildable = not op.obstacle
    return Op(
        op.index,
        op.name,
        op.module,
        op.reads,
        outputs,
        flops,
        traffic,
        rebuildable,
        after=after,
        gradients=op.gradients,
    )


def _with_random(ledger: LayerLedger, draws: frozenset[int]) -> LayerLedger:
    """Mark what takes random numbers, or an op that must not run twice, to rebuild with everything else kept."""
    saved = frozenset(b.index for b in ledger.saved_activations())
    buffers = list(ledger.buffers)
    for index in saved:
        try:
            random = not draws.isdisjoint(ledger.ops_behind([index], saved - {index}))
        except ValueError:
            buffers[index] = replace(buffers[index], source=Source.ONCE)
        else:
            if random and buffers[index].source is Source.ACTIVATION:
                buffers[index] = replace(buffers[index], source=Source.RANDOM)
    return LayerLedger(ledger.class_name, tuple(buffers), ledger.ops)
