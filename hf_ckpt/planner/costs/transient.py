"""What a layer's backward needs on top of what the layers before it hold, from its ledger. Pure arithmetic, no torch.

Backward goes through the ops in reverse. At an op there are alive: the layer's input, what was saved for this op and
for those before it, the gradients of what crosses it (made before or by it, read by or after it), the op's part of a
gradient that others have a part in too, what its backward takes for itself, and the parameters' gradients made so far.
Dropped tensors come back all at once, where backward first asks for one of them; of those that equal ops make there is
one. An input that was offloaded goes with the replay that reads it; one that was not is counted throughout, for the
first forward under a plan, which compares what it rebuilds. A part that runs in chunks is one op here: its backward has
gradients of all tokens, and takes a chunk's bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from ...ledger import Source
from ...op_catalogue import traits_of
from .workspace import chunk_bytes, op_workspace

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from ...ledger import Buffer, LayerLedger


def transient_bytes(ledger: LayerLedger, *, gradients: int = 0, held: Set[int] | None = None) -> int:
    """Bytes alive at the worst moment of one layer's backward, the tensors it saved included.

    ``gradients`` is bytes of parameter gradients that the backward makes; ``held`` the buffers kept or offloaded. None
    is the most that any plan needs: when the whole layer is replayed first.
    """
    if ledger.workspace is not None:
        return _counted_bytes(ledger, ledger.workspace, held) + gradients
    order = _order_of(ledger)
    own = next((b for b in ledger.buffers if b.source is Source.INPUT), None)
    further = ledger.own_input_bytes()
    saved = frozenset(b.index for b in order.saved)
    if held is None:
        timeline = _Timeline(order, gradients, further, own.nbytes if own is not None else 0)
        everything, end = frozenset(range(len(ledger.ops))), len(ledger.ops)
        return max(timeline.backward(saved, end), timeline.replay(everything, saved, end))
    dropped, again = saved - held, ledger.rebuild_ops(frozenset(held))
    is_there = own is not None and (bool(own.saved) or any(own.index in ledger.ops[op].inputs for op in again))
    goes = own is not None and own.index in held and not own.saved
    timeline = _Timeline(order, gradients, further, own.nbytes if own is not None and is_there else 0, goes=goes)
    asked = max(map(order.last_user, dropped), default=-1)
    worst = timeline.backward(dropped, asked)
    if not dropped:
        return worst
    return max(worst, timeline.replay(again, dropped, asked))


def _counted_bytes(ledger: LayerLedger, workspace: int, held: Set[int] | None) -> int:
    """What :func:`transient_bytes` says of a counted ledger: its ops are pieces, the last one the whole layer.

    A piece is replayed when backward comes to it, all at once with those in it, and those behind it are done by then.
    """
    own = next((b.nbytes for b in ledger.buffers if b.source is Source.INPUT), 0)
    workspace += _estimated_chunk_bytes(ledger)
    made = {b.producer: b for b in ledger.saved_activations()}
    stored = made.keys() if held is None else {op for op, b in made.items() if b.index in held}
    producers = [[p for b in op.inputs if (p := ledger.buffers[b].producer) is not None] for op in ledger.ops]

    def saved(op: int) -> int:
        return made[op].nbytes + sum(map(saved, producers[op]))

    def worst(op: int, before: int) -> tuple[int, int]:
        """The most bytes alive in the backward of a piece, and those held when its forward is over."""
        if op not in stored:
            return before + saved(op), before
        most = before = before + made[op].nbytes
        for inner in producers[op]:
            alive, before = worst(inner, before)
            most = max(most, alive)
        return most, before

    return own + ledger.own_input_bytes() + workspace + worst(len(ledger.ops) - 1, 0)[0]


def _estimated_chunk_bytes(ledger: LayerLedger) -> int:
    """Bytes that the backward of a part in chunks takes for one of them, by its weights' widths."""
    shape = ledger.own_input.shape if ledger.own_input is not None else ()
    tokens = math.prod(shape[:-1])
    return max((-(-tokens // part.chunks) * part.token + part.sums for part in ledger.chunked), default=0)


@dataclass(frozen=True, slots=True)
class _Timeline:
    """One backward of a layer: the order of its ops, bytes of its parameters' ``gradients`` and ``further`` inputs.

    ``own`` are those of the hidden states that it reads, 0 where nothing needs them; ``goes`` is whether they go with
    the replay.
    """

    order: _Order
    gradients: int
    further: int
    own: int
    goes: bool = False

    def backward(self, dropped: Set[int], asked: int) -> int:
        """The most bytes alive in the ops' backward; ``dropped`` buffers are there from op ``asked`` on."""
        order, there, absent = self.order, self.order.saved_by_op(rebuilt=dropped), self.order.saved_by_op(dropped)
        after_replay = 0 if self.goes else self.own
        alive = (
            (absent[op] + self.own if op > asked else there[op] + after_replay)
            + order.beside[op]
            + self._parameter_gradients(op)
            for op in range(len(order.ledger.ops))
        )
        return max((self.further + nbytes for nbytes in alive), default=0)

    def replay(self, ops: Set[int], dropped: Set[int], asked: int) -> int:
        """The most bytes alive while ``ops`` run again to make ``dropped``, before the backward of op ``asked``."""
        ledger = self.order.ledger
        buffers, last = ledger.buffers, dict.fromkeys(range(len(ledger.buffers)), -1)
        after = self._parameter_gradients(asked + 1) if asked + 1 < len(ledger.ops) else 0
        saved = self.order.saved_by_op(dropped)[asked] if asked >= 0 else 0
        around = self.further + self.own + saved + self.order.crossing_after(asked) + after
        one = {b.index: b.twin for b in buffers if b.twin is not None and buffers[b.twin].producer in ops}
        ops, dropped = {op for op in ops if not one.keys() & ledger.ops[op].outputs}, {one.get(b, b) for b in dropped}
        last |= {one.get(b, b): op for op in sorted(ops) for b in ledger.ops[op].inputs}
        worst, made = 0, set[int]()
        for op in sorted(ops):
            made.update(ledger.ops[op].outputs)
            worst = max(worst, sum(buffers[b].nbytes for b in made))
            made = {b for b in made if b in dropped or last[b] > op}
        return around + worst

    def _parameter_gradients(self, op: int) -> int:
        """Bytes of parameter gradients once the backward of ``op`` is done, its own included."""
        return self.gradients * self.order.trained[op] // self.order.all_trained


@dataclass(frozen=True)
class _Order:
    """The order of a layer's ops, and until when each buffer is needed: the same under every plan."""

    ledger: LayerLedger

    def saved_by_op(self, absent: Set[int] = frozenset(), *, rebuilt: Set[int] = frozenset()) -> list[int]:
        """For each op, and for what comes after all of them, bytes saved for its backward and those before it.

        Without what is ``absent``. Of ``rebuilt`` buffers that equal ops make there is one, while any is needed.
        """
        needed: dict[int, int] = {}
        for buffer in self.saved:
            if buffer.index not in absent:
                one = buffer.twin if buffer.index in rebuilt and buffer.twin in rebuilt else None
                index = buffer.index if one is None else one
                needed[index] = min(needed.get(index, len(self.ledger.ops)), self._needed_from[buffer.index])
        added = [0] * (len(self.ledger.ops) + 1)
        for index, first in needed.items():
            added[first] += self.ledger.buffers[index].nbytes
        return list(accumulate(added))

    def crossing_after(self, op: int) -> int:
        """Bytes of the gradients of what is made before or by ``op`` and read after it."""
        return self._gradients_of(b for b in self._made if _born(b) <= op < self._last_reader[b.index])

    def last_user(self, buffer: int) -> int:
        """The op whose backward is the first to ask for a saved buffer."""
        producer = self.ledger.buffers[buffer].producer
        readers = (op.index for op in self.ledger.ops if buffer in op.inputs and traits_of(op.name).reads_input)
        return max(readers, default=-1 if producer is None else producer)

    @cached_property
    def saved(self) -> tuple[Buffer, ...]:
        """The buffers a plan decides about."""
        return tuple(self.ledger.saved_activations())

    @cached_property
    def beside(self) -> list[int]:
        """For each op, bytes in its backward beside what is saved and the parameters' gradients.

        Gradients of what crosses it, and of what it reads that ops behind it read too: its own part of these comes
        beside theirs. What it takes for itself.
        """
        found: list[int] = []
        for first, last, inside, workspace in self._steps:
            crossing = [
                b
                for b in self._made
                if b.index not in inside and _born(b) <= last and self._last_reader[b.index] >= first
            ]
            read = {b for op in self.ledger.ops[first : last + 1] for b in op.inputs}
            passes = last == first and not traits_of(self.ledger.ops[first].name).reads_input
            parts = [b for b in crossing if b.index in read and self._last_reader[b.index] > last and not passes]
            nbytes = self._gradients_of(crossing) + self._gradients_of(parts) + workspace
            found += [nbytes] * (last + 1 - first)
        return found

    @cached_property
    def _steps(self) -> list[tuple[int, int, frozenset[int], int]]:
        """The ops, a part that runs in chunks as one: its first and last, buffers inside it, bytes for itself."""
        steps: list[tuple[int, int, frozenset[int], int]] = []
        ops, parts = self.ledger.ops, self.ledger.chunked
        for part, run in groupby(ops, lambda op: next((part for part in parts if part.has(op)), None)):
            indices = [op.index for op in run]
            if part is None:
                steps += [(op, op, frozenset(), op_workspace(self.ledger, ops[op])) for op in indices]
                continue
            first, last = indices[0], indices[-1]
            made = {b for op in indices for b in ops[op].outputs}
            inside = frozenset(b for b in made if self._last_reader[b] <= last)
            steps.append((first, last, inside, chunk_bytes(self.ledger, part)))
        return steps

    @cached_property
    def trained(self) -> list[int]:
        """For each op, bytes of the parameters whose gradients are there once its backward is done.

        The ledger does not say which parameters are trained: each is taken for the same share of its bytes.
        """
        read = [(b.nbytes, self._first_use[b.index]) for b in self._parameters]
        return [sum(nbytes for nbytes, first in read if first >= op) for op in range(len(self.ledger.ops))]

    @cached_property
    def all_trained(self) -> int:
        """Bytes of all parameters that ops read; 1 where there are none."""
        return sum(b.nbytes for b in self._parameters) or 1

    def _gradients_of(self, buffers: Iterable[Buffer]) -> int:
        """Bytes of these buffers' gradients. The gradients of what an addition adds are one tensor, that of the sum."""
        return sum({self._gradient_of[b.index]: b.nbytes for b in buffers if "float" in b.dtype}.values())

    @cached_property
    def _made(self) -> tuple[Buffer, ...]:
        """The buffers that may have a gradient, parameters aside."""
        return tuple(b for b in self.ledger.buffers if b.source is not Source.PARAMETER)

    @cached_property
    def _parameters(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.ledger.buffers if b.source is Source.PARAMETER and b.index in self._first_use)

    @cached_property
    def _first_use(self) -> dict[int, int]:
        """The first op that reads each buffer to make something of it."""
        return {b: op.index for op in reversed(self.ledger.ops) if op.outputs for b in op.inputs}

    @cached_property
    def _last_reader(self) -> dict[int, int]:
        """The last op that reads each buffer; one never read lives until the end."""
        last = {b.index: len(self.ledger.ops) for b in self.ledger.buffers}
        return last | {b: op.index for op in self.ledger.ops for b in op.inputs}

    @cached_property
    def _needed_from(self) -> list[int]:
        """For each buffer, the op whose backward is the last to need it: its first reader, or the op that made it."""
        first = [len(self.ledger.ops)] * len(self.ledger.buffers)
        for op in reversed(self.ledger.ops):
            for b in op.inputs:
                first[b] = op.index
        for buffer in self.ledger.buffers:
            if buffer.producer is not None and traits_of(self.ledger.ops[buffer.producer].name).reads_output:
                first[buffer.index] = buffer.producer
        return first

    @cached_property
    def _gradient_of(self) -> list[int]:
        """For each buffer, the buffer whose gradient is stored with its own."""
        stands_for = list(range(len(self.ledger.buffers)))
        for op in reversed(self.ledger.ops):
            if op.name.startswith("aten.add.") and op.outputs:
                total = self.ledger.buffers[op.outputs[0]]
                for b in op.inputs:
                    if self.ledger.buffers[b].nbytes == total.nbytes:
                        stands_for[b] = stands_for[total.index]
        return stands_for


#: A forecast asks about the same few layers under many plans.
@lru_cache(maxsize=64)
def _order_of(ledger: LayerLedger) -> _Order:
    return _Order(ledger)


def _born(buffer: Buffer) -> int:
    return -1 if buffer.producer is None else buffer.producer
