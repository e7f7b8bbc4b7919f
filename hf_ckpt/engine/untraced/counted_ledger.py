"""The ledger of a layer that cannot be traced, from what its sublayers were seen to save.

Each sublayer is one op that makes again, all at once, the bytes that only it saves. What else the layer saves (the
sublayers' inputs among it) comes back only when the whole layer is replayed: one more op, which needs all the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ledger import Buffer, LayerLedger, Op, Source
from .saved_counter import LAYER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .saved_counter import SavedCounter, SublayerCount

#: What the ops of a counted ledger are called.
SUBLAYER_OP = "sublayer.forward"
#: In the backward of a sublayer its largest tensor has two gradients at once: its own, and that of what it is made of.
GRADIENTS_OF_LARGEST = 2
#: The most different sublayers whose times are remembered.
_MAX_TIMES = 1024

#: The least time in which equal sublayers ran: the first run of a kernel takes longer.
_least_seconds: dict[tuple[object, ...], float] = {}


def counted_ledger(class_name: str, counter: SavedCounter) -> LayerLedger:
    """The ledger of the forward that ``counter`` saw, of a layer of class ``class_name``."""
    inner = {name: _net(name, count, counter) for name, count in counter.sublayers.items()}
    given = {key for keys in counter.inputs for key in keys}
    saved = sum(counter.bytes_of[key] for key in counter.savers if key not in given)
    rest = saved - sum(inner.values())
    buffers = [*_inputs(counter), *_made(inner, rest, first=len(counter.inputs))]
    return LayerLedger(
        class_name, tuple(buffers), tuple(_ops(class_name, inner, counter)), workspace=_workspace(counter)
    )


def note_seconds(class_name: str, counter: SavedCounter) -> None:
    """Remember the time that each sublayer took, to be called when the forward is over."""
    if len(_least_seconds) >= _MAX_TIMES:
        _least_seconds.clear()
    for name, count in (*counter.sublayers.items(), (LAYER, counter.whole)):
        key, seconds = _time_key(class_name, name, count, counter), count.seconds()
        _least_seconds[key] = min(seconds, _least_seconds.get(key, seconds))


def _net(name: str, count: SublayerCount, counter: SavedCounter) -> int:
    """Bytes that replaying this sublayer alone frees: what only it saves, less inputs that nobody else holds."""
    given = {key for other in counter.sublayers.values() for key in other.inputs} | _all(counter.inputs)
    own = sum(counter.bytes_of[k] for k, savers in counter.savers.items() if savers == {name} and k not in given)
    held = sum(counter.bytes_of[k] for k in count.inputs if k not in counter.savers and k not in _all(counter.inputs))
    return max(0, own - held)


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


def _made(inner: dict[str, int], rest: int, *, first: int) -> list[Buffer]:
    """For each sublayer what it saves and a sign that it ran, which the whole layer needs; and what else is saved."""
    buffers = []
    for op, nbytes in enumerate(inner.values()):
        place = first + 2 * op
        buffers.append(_bytes(place, nbytes, op, saved=True))
        buffers.append(_bytes(place + 1, 0, op, saved=False))
    return [*buffers, _bytes(first + 2 * len(inner), rest, len(inner), saved=True)]


def _bytes(index: int, nbytes: int, producer: int, *, saved: bool) -> Buffer:
    return Buffer(index, nbytes, Source.ACTIVATION, producer, (index,) if saved else (), (nbytes,), "uint8")


def _ops(class_name: str, inner: dict[str, int], counter: SavedCounter) -> list[Op]:
    first, ops, spent = len(counter.inputs), list[Op](), 0.0
    for number, (name, count) in enumerate(counter.sublayers.items()):
        read = tuple(i for i, keys in enumerate(counter.inputs) if not count.inputs.isdisjoint(keys))
        made = (first + 2 * number, first + 2 * number + 1)
        seconds = _least_seconds[_time_key(class_name, name, count, counter)]
        ops.append(_op(number, name, read, made, seconds))
        spent += seconds
    ran = tuple(first + 2 * number + 1 for number in range(len(inner)))
    around = max(0.0, _least_seconds[_time_key(class_name, LAYER, counter.whole, counter)] - spent)
    return [*ops, _op(len(ops), LAYER, (*range(first), *ran), (first + 2 * len(inner),), around)]


def _op(index: int, module: str, inputs: Sequence[int], outputs: Sequence[int], seconds: float) -> Op:
    return Op(index, SUBLAYER_OP, module, tuple(inputs), tuple(outputs), 0, 0, rebuildable=True, seconds=seconds)


def _time_key(class_name: str, name: str, count: SublayerCount, counter: SavedCounter) -> tuple[object, ...]:
    return class_name, name, *sorted(counter.bytes_of[key] for key in count.inputs)


def _workspace(counter: SavedCounter) -> int:
    """Bytes that the backward of one sublayer takes beside what was saved: gradients of its largest tensors."""
    largest = max((counter.bytes_of[key] for key in counter.savers), default=0)
    return GRADIENTS_OF_LARGEST * largest + sum(counter.bytes_of[key] for key in counter.inputs[0])
