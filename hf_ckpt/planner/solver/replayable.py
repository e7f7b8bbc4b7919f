"""Which ops of a kind are worth running again, and what that frees. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ledger import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...ledger import Buffer, LayerLedger, Op
    from ..costs.problem import Kind


@dataclass(frozen=True, slots=True)
class Replayable:
    """The ops that may run again, in program order.

    ``needs`` has for each op those that must then run too; ``follows`` the op that an op runs with, where it frees
    nothing itself and nothing else needs it; ``frees`` the bytes that an op's running again frees. ``input_readers``
    are ops in ``frees`` without which the layer's input (``input_bytes``) would not be held.
    """

    needs: Mapping[int, tuple[int, ...]]
    follows: Mapping[int, int]
    frees: Mapping[int, int]
    input_readers: tuple[int, ...]
    input_bytes: int


def replayable(kind: Kind) -> Replayable:
    """What can be rebuilt in layers of this kind."""
    ledger = kind.ledger
    needs = _needs(ledger)
    frees = {o: _freed(ledger, ledger.ops[o]) for o in needs}
    users: dict[int, list[int]] = {}
    for op, predecessors in needs.items():
        for p in predecessors:
            users.setdefault(p, []).append(op)
    follows = {o: users[o][0] for o in needs if not frees[o] and len(users[o]) == 1}
    return Replayable(
        needs,
        follows,
        {op: freed for op, freed in frees.items() if freed},
        _input_readers(kind, needs, frees),
        kind.own_input.nbytes if kind.own_input is not None else 0,
    )


def _needs(ledger: LayerLedger) -> dict[int, tuple[int, ...]]:
    """The ops worth running again, each with the ops that must then run too.

    An op that reads what no op made, or what comes from an op that must not run twice, and that autograd did not save,
    cannot run again.
    """
    found: dict[int, tuple[int, ...]] = {}
    for op in ledger.ops:
        unsaved = [b for b in map(ledger.buffers.__getitem__, op.inputs) if _made_unsaved(b)]
        producers = {b.producer for b in unsaved}
        if op.rebuildable and all(p in found for p in producers.union(op.after)):
            found[op.index] = tuple(sorted({p for p in producers if p is not None}.union(op.after)))
    useful: set[int] = set()
    for op in reversed(ledger.ops):
        if op.index in found and (op.index in useful or _freed(ledger, op)):
            useful |= {op.index, *found[op.index]}
    return {o: p for o, p in found.items() if o in useful}


def _made_unsaved(buffer: Buffer) -> bool:
    return buffer.source.is_made and not buffer.saved


def _freed(ledger: LayerLedger, op: Op) -> int:
    """Bytes of the saved activations that ``op`` makes."""
    made = (ledger.buffers[b] for b in op.outputs)
    return sum(b.nbytes for b in made if b.saved and b.producer == op.index and b.source is not Source.ONCE)


def _input_readers(kind: Kind, needs: Mapping[int, tuple[int, ...]], frees: Mapping[int, int]) -> tuple[int, ...]:
    """The ops that free something and, themselves or through what they need, read an input nobody holds anyway."""
    own = kind.own_input
    if own is None or own.saved:
        return ()
    reading: set[int] = set()
    for op, predecessors in needs.items():
        if own.index in kind.ledger.ops[op].inputs or not reading.isdisjoint(predecessors):
            reading.add(op)
    return tuple(op for op in sorted(reading) if frees[op])
