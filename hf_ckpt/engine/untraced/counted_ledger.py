"""The ledger of a layer that cannot be traced, from what its pieces were seen to save.

Each piece is one op that makes again, all at once, the bytes that only it saves, less those of the pieces in it. It
needs their ops, because replaying it replays them. What else the layer saves (its sublayers' inputs among it) comes
back only when the whole layer is replayed: the last op, which needs all the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ledger import Buffer, LayerLedger, Op, Source
from .pieces import LAYER
from .saved_counter import PieceCount

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from .saved_counter import SavedCounter

#: What the ops of a counted ledger are called.
SUBLAYER_OP = "sublayer.forward"
#: The op that makes what no replay makes again.
CHOICES_OP = "sublayer.choices"
#: In the backward of a sublayer its largest tensor has two gradients at once: its own, and that of what it is made of.
GRADIENTS_OF_LARGEST = 2
#: What torch's checkpoint takes around a forward of nothing, in seconds (tests/engine/untraced/test_pieces.py).
CHECKPOINT_SECONDS = 2e-4
#: The most different pieces whose times are remembered.
_MAX_TIMES = 4096

#: The least time in which equal pieces ran: the first run of a kernel takes longer.
_least_seconds: dict[tuple[object, ...], float] = {}


def counted_ledger(class_name: str, counter: SavedCounter, around: Mapping[str, str]) -> LayerLedger:
    """The ledger of the forward that ``counter`` saw, of a layer of class ``class_name``.

    ``around`` has the pieces that may be replayed alone, each with the name of the one around it.
    """
    buffers, ops = _inputs(counter), list[Op]()
    if chosen := _chosen(LAYER, counter):
        kept = len(buffers)
        buffers.append(_bytes(kept, chosen, 0, saved=True, source=Source.ONCE))
        ops.append(Op(0, CHOICES_OP, LAYER, (), (kept,), 0, 0, rebuildable=False, seconds=0.0))
    pieces = _pieces(class_name, counter, around)
    signs = {piece.name: len(buffers) + 2 * place + 1 for place, piece in enumerate(pieces)}
    for piece in pieces:
        made, index = len(buffers), len(ops)
        read = {i for i, keys in enumerate(counter.inputs) if piece.name == LAYER or not piece.inputs.isdisjoint(keys)}
        needed = [signs[inner] for inner in piece.inner]
        buffers += [_bytes(made, piece.nbytes, index, saved=True), _bytes(made + 1, 0, index, saved=False)]
        ops.append(_op(index, piece.name, (*sorted(read), *needed), (made, made + 1), piece.seconds))
    return LayerLedger(class_name, tuple(buffers), tuple(ops), workspace=_workspace(counter))


def note_seconds(class_name: str, counter: SavedCounter) -> None:
    """Remember the time that each piece took, to be called when the forward is over."""
    if len(_least_seconds) >= _MAX_TIMES:
        _least_seconds.clear()
    for name, count in (*counter.pieces.items(), (LAYER, counter.whole)):
        key, seconds = _time_key(class_name, name, count, counter), count.seconds()
        _least_seconds[key] = min(seconds, _least_seconds.get(key, seconds))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece: what its own op makes again, and takes, beside those of the pieces in it."""

    name: str
    inputs: set[int]
    inner: tuple[str, ...]
    nbytes: int
    seconds: float


def _pieces(class_name: str, counter: SavedCounter, around: Mapping[str, str]) -> list[_Piece]:
    """All pieces in the order in which they ran, each behind those in it; the layer itself is the last one."""
    counts = {name: PieceCount() for name in around} | counter.pieces | {LAYER: counter.whole}
    ran = sorted(around, key=[*counter.pieces, *around].index)
    saved = {name: _net(name, around, counter) for name in ran}
    all_saved = sum(counter.bytes_of[key] for key in counter.savers if key not in _all(counter.inputs))
    saved[LAYER] = max(0, all_saved - _chosen(LAYER, counter))
    seconds = {name: _seconds_of(class_name, name, count, counter) for name, count in counts.items()}

    def behind(name: str) -> Iterator[_Piece]:
        inner = tuple(piece for piece in ran if around[piece] == name)
        for piece in inner:
            yield from behind(piece)
        # Where replaying those in it frees as much, there is nothing left for its own op.
        nbytes, took = sum(saved[piece] for piece in inner), sum(seconds[piece] for piece in inner)
        saved[name], seconds[name] = max(saved[name], nbytes), max(seconds[name], took)
        yield _Piece(name, counts[name].inputs, inner, saved[name] - nbytes, seconds[name] - took)

    return [*behind(LAYER)]


def _seconds_of(class_name: str, name: str, count: PieceCount, counter: SavedCounter) -> float:
    """What replaying the piece takes; nothing for one that did not run."""
    if not count.clocks:
        return 0.0
    known = _least_seconds.get(_time_key(class_name, name, count, counter))
    return CHECKPOINT_SECONDS + (count.seconds() if known is None else known)


def _net(name: str, pieces: Container[str], counter: SavedCounter) -> int:
    """Bytes that replaying this piece alone frees: what only it saves, less inputs that nobody else holds."""
    count = counter.pieces.get(name, PieceCount())
    ran = ((piece, other) for piece, other in counter.pieces.items() if piece in pieces)
    others = (other.inputs for piece, other in ran if not piece.startswith(f"{name}."))
    layers, given = _all(counter.inputs), _all(others)
    own = (k for k, savers in counter.savers.items() if all(name in ran for ran in savers))
    held = (k for k in count.inputs if k not in counter.savers and k not in layers)
    freed = sum(counter.bytes_of[k] for k in own if k not in given and k not in layers)
    return max(0, freed - sum(counter.bytes_of[k] for k in held) - _chosen(name, counter))


def _chosen(name: str, counter: SavedCounter) -> int:
    """Bytes of the choices made in a piece: whoever replays it keeps them."""
    return sum(nbytes for nbytes, ran in counter.choices if name == LAYER or name in ran)


def _all(groups: Iterable[Iterable[int]]) -> set[int]:
    return {key for group in groups for key in group}


def _inputs(counter: SavedCounter) -> list[Buffer]:
    return [
        Buffer(
            index=i,
            nbytes=sum(counter.bytes_of[key] for key in keys),
            source=Source.INPUT,
            producer=None,
            saved=(i,) if any(key in counter.savers for key in keys) else (),
            shape=(),
            dtype="",
        )
        for i, keys in enumerate(counter.inputs)
    ]


def _bytes(index: int, nbytes: int, producer: int, *, saved: bool, source: Source = Source.ACTIVATION) -> Buffer:
    return Buffer(index, nbytes, source, producer, (index,) if saved else (), (nbytes,), "uint8")


def _op(index: int, module: str, inputs: tuple[int, ...], outputs: tuple[int, ...], seconds: float) -> Op:
    return Op(index, SUBLAYER_OP, module, inputs, outputs, 0, 0, rebuildable=True, seconds=seconds)


def _time_key(class_name: str, name: str, count: PieceCount, counter: SavedCounter) -> tuple[object, ...]:
    return class_name, name, *sorted(counter.bytes_of[key] for key in count.inputs)


def _workspace(counter: SavedCounter) -> int:
    """Bytes that the backward of one sublayer takes beside what was saved: gradients of its largest tensors."""
    largest = max((counter.bytes_of[key] for key in counter.savers), default=0)
    return GRADIENTS_OF_LARGEST * largest + sum(counter.bytes_of[key] for key in counter.inputs[0])
