"""What taking frozen 4-bit weights out of their packing costs, before every product with one. Pure, no torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ledger import Source
from ...op_catalogue import traits_of
from .roofline import op_seconds

if TYPE_CHECKING:
    from ...ledger import LayerLedger, Op
    from .roofline import Calibration

#: Bytes read and written for each byte of the weight as it is computed with: the packed one, its scales, the result.
_TRAFFIC = 1.28


def unpacking(ledger: LayerLedger, rates: Calibration) -> LayerLedger:
    """The ledger of a layer whose frozen weights are packed: each of their products takes the unpacking too."""
    return replace(ledger, ops=tuple(_unpacked(ledger, op, rates) for op in ledger.ops))


def _unpacked(ledger: LayerLedger, op: Op, rates: Calibration) -> Op:
    weights = [b for b in map(ledger.buffers.__getitem__, op.inputs) if b.source is Source.PARAMETER]
    if not (traits_of(op.name).weight_product and weights and op.gradients < 2):
        return op
    dtype = ledger.buffers[op.outputs[0]].dtype if op.outputs else ""
    traffic = _TRAFFIC * sum(b.nbytes for b in weights)
    return replace(op, seconds=op_seconds(op, dtype, rates) + traffic / rates.stream)
