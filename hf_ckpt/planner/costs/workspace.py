"""What the backward of an op, or of a chunk of a part, takes beside saved tensors and gradients. Pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ledger import Source
from ...op_catalogue import traits_of

if TYPE_CHECKING:
    from ...ledger import Buffer, ChunkedPart, LayerLedger, Op

_FLOAT32 = 4
_ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
#: Gradients and temporaries of its largest tensor that the backward of a chunk has at its worst moment.
_LARGEST = 3
#: A sum over more bytes of a half type runs in pieces, and adds up in a float32 tensor of its own (`AccumulationBuffer`
#: and `can_use_32bit_indexing` in ATen/native/cuda/Reduce.cuh).
_SUMMED_AT_ONCE = 2**31


def op_workspace(ledger: LayerLedger, op: Op) -> int:
    """Bytes that the backward of ``op`` takes for itself."""
    traits, read = traits_of(op.name), [ledger.buffers[b] for b in op.inputs]
    made = ledger.buffers[op.outputs[0]].nbytes if op.outputs else 0
    taken = traits.workspace * made
    if traits.summed and read:
        taken += traits.summed * _in_float32(read[0])
    if traits.grouped and len(read) > 1 and read[1].nbytes < read[0].nbytes:
        taken += traits.grouped * read[0].nbytes
        if read[0].nbytes > _SUMMED_AT_ONCE and _in_float32(read[1]) > read[1].nbytes:
            taken += _in_float32(read[1])
    return taken


def _in_float32(buffer: Buffer) -> int:
    return buffer.nbytes * _FLOAT32 // _ITEMSIZE.get(buffer.dtype, _FLOAT32)


def chunk_bytes(ledger: LayerLedger, part: ChunkedPart) -> int:
    """Bytes that the backward of a part takes for one of its chunks, at most, and for the sums of gradients.

    The chunk itself with its two gradients, what autograd saves in it, and gradients of the largest tensor in it.
    """
    ops = [op for op in ledger.ops if part.has(op)]
    inside = {b for op in ops for b in op.outputs}
    given = {b for op in ops for b in op.inputs} - inside
    tokens = max(
        (b.nbytes for b in map(ledger.buffers.__getitem__, given) if b.source is not Source.PARAMETER), default=0
    )
    left = max((ledger.buffers[b].nbytes for b in ops[-1].outputs), default=0) if ops else 0
    made = [ledger.buffers[b] for op in ops[:-1] for b in op.outputs]
    saved = sum(b.nbytes for b in _saved(ledger, ops, inside))
    largest = max((b.nbytes for b in made), default=0)
    return (2 * tokens + left + saved) // part.chunks + _LARGEST * largest + part.sums


def _saved(ledger: LayerLedger, ops: list[Op], inside: set[int]) -> set[Buffer]:
    """What autograd saves of what these ops make."""
    found: set[Buffer] = set()
    for op in ops:
        traits, made = traits_of(op.name), [b for b in op.inputs if b in inside]
        alone = len(op.inputs) < 2 and op.name.startswith(("aten.mul.", "aten.div."))  # by a number
        if traits.reads_input and not alone and op.outputs:
            found.update(map(ledger.buffers.__getitem__, made))
    return found
